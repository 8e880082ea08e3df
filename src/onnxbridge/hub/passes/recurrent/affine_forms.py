"""Writes values as sums of products with constant matrices, also where products were concatenated or split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array, known_sizes
from onnxbridge.hub.passes.recurrent.gate_activations import LINEAR, Activation, activation_of
from onnxbridge.hub.passes.value_queries import skip_nodes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Product:
    """`source @ matrix + bias` (or `source` without a matrix); `of` and `biases` are the graph values of the constants."""

    source: ir.Value
    matrix: Array | None = None
    of: ir.Value | None = None
    bias: Array | None = None
    biases: tuple[ir.Value, ...] = ()

    def plus(self, bias: Array | None, value: ir.Value | None = None) -> Product:
        if bias is None:
            return self
        biases = self.biases if value is None else (*self.biases, value)
        return replace(self, bias=bias if self.bias is None else self.bias + bias, biases=biases)

    def cut(self, part: slice) -> Product | None:
        if self.matrix is None:
            return None
        return replace(self, matrix=self.matrix[:, part], bias=None if self.bias is None else self.bias[part])

    def offset(self, width: int, dtype: Any) -> Array:
        return np.zeros(width, dtype) if self.bias is None else self.bias


class AffineForms:
    """The affine forms of the values of a loop body, cached."""

    def __init__(self, body: ir.Graph) -> None:
        self._body = body
        self._found: dict[ir.Value, tuple[Product, ...]] = {}

    def of(self, value: Any) -> tuple[Product, ...]:
        """The products whose sum is a value; a single product of the value itself if it has no affine form."""
        value = skip_nodes(value)
        if value not in self._found:
            node = value.producer()
            products = None
            if node is not None and node.graph is self._body and not node.domain and node.op_type in _RULES:
                products = getattr(self, _RULES[node.op_type])(node, value)
            self._found[value] = products or (Product(value),)
        return self._found[value]

    def _matmul(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        return self._times(node.inputs[0], constant_array(node.inputs[1]), node.inputs[1])

    def _gemm(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        plain = {a: node.attributes[a].as_float() for a in ("alpha", "beta") if a in node.attributes}
        transposed = {a: node.attributes[a].as_int() for a in ("transA", "transB") if a in node.attributes}
        matrix = constant_array(node.inputs[1])
        if any(v != 1.0 for v in plain.values()) or transposed.get("transA") or matrix is None:
            return None
        products = self._times(node.inputs[0], matrix.T if transposed.get("transB") else matrix, node.inputs[1])
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        return products if products is None or bias is None else self._add_bias(products, bias)

    def _times(self, value: Any, matrix: Array | None, of: Any) -> tuple[Product, ...] | None:
        if matrix is None or matrix.ndim != 2:
            return None
        concat = skip_nodes(value).producer()
        if concat is None or concat.op_type != "Concat" or concat.graph is not self._body or concat.domain:
            return (Product(skip_nodes(value), matrix, of),)
        shapes = [v.shape for v in concat.inputs if v is not None]
        widths = [s[-1] for s in shapes if s is not None and len(s) == 2]
        axis = concat.attributes["axis"].as_int()
        if len(widths) != len(concat.inputs) or not all(isinstance(w, int) for w in widths) or axis not in (1, -1):
            return (Product(skip_nodes(value), matrix, of),)
        ends = np.cumsum(widths)
        parts = zip(concat.inputs, widths, ends, strict=True)
        return tuple(Product(skip_nodes(v), matrix[e - w : e], of) for v, w, e in parts)

    def _add(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        for a, b in (node.inputs, node.inputs[::-1]):
            if constant_array(b) is not None:
                return self._add_bias(self.of(a), b)
        first, second = (self.of(v) for v in node.inputs)
        disjoint = not {p.source for p in first} & {p.source for p in second}
        matrices = all(v is not None and v.shape is not None and len(v.shape) == 2 for v in node.inputs)
        return first + second if disjoint and matrices and node.inputs[0].shape[-1] == node.inputs[1].shape[-1] else None  # type: ignore[union-attr,index]

    def _add_bias(self, products: tuple[Product, ...], value: Any) -> tuple[Product, ...] | None:
        bias = constant_array(value)
        width = next((p.matrix.shape[1] for p in products if p.matrix is not None), None)
        if bias is None or width is None or bias.size not in (1, width) or bias.ndim > 2:
            return None
        if bias.size > 1 and bias.shape[-1] != width:
            return None
        bias = np.broadcast_to(bias.reshape(-1), (width,))
        free = next((i for i, p in enumerate(products) if p.bias is None and p.matrix is not None), 0)
        return tuple(p.plus(bias, value) if i == free else p for i, p in enumerate(products))

    def _split(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        part = columns(node, value)
        return None if part is None else self._cut(node.inputs[0], part)

    def activated(self, value: Any) -> tuple[Activation, tuple[Product, ...]]:
        """The activation of a value, and the products whose sum is its argument; also where a product is split after that."""
        found = activation_of(value)
        if found is not None:
            return found[0], self.of(found[1])
        value = skip_nodes(value)
        node = value.producer() if value is not None else None
        if node is not None and node.graph is self._body and not node.domain and node.op_type in ("Split", "Slice"):
            part, found = columns(node, value), activation_of(node.inputs[0])
            products = None if part is None or found is None else self._cut(found[1], part)
            if found is not None and products is not None:
                return found[0], products
        return LINEAR, self.of(value)

    def _cut(self, value: Any, part: slice) -> tuple[Product, ...] | None:
        parts = [p.cut(part) for p in self.of(value)]
        return None if None in parts else tuple(p for p in parts if p is not None)


def columns(node: ir.Node, value: ir.Value) -> slice | None:
    """The columns of a matrix that an output of a Split or Slice has; None if it has other elements."""
    shape = node.inputs[0].shape if node.inputs[0] is not None else None
    if shape is None or len(shape) != 2:
        return None
    if node.op_type == "Split":
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        widths = [o.shape[-1] if o.shape is not None else None for o in node.outputs]
        if axis not in (1, -1) or not all(isinstance(w, int) for w in widths):
            return None
        i, ends = list(node.outputs).index(value), list(accumulate(w for w in widths if isinstance(w, int)))
        return slice(ends[i - 1] if i else 0, ends[i])
    bounds = [known_sizes(v) for v in node.inputs[1:]]
    if len(bounds) < 3 or any(g is None or len(g) != 1 or g[0] is None for g in bounds):
        return None
    start, end, axis, step = (*(g[0] for g in bounds if g is not None), 1)[:4]  # type: ignore[assignment]
    return slice(start, end) if axis in (1, -1) and step == 1 else None


_RULES = {"MatMul": "_matmul", "Gemm": "_gemm", "Add": "_add", "Split": "_split", "Slice": "_split"}
