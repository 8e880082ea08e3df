"""Values of a graph as sums of products with constant matrices, however the products were joined and cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import sizes, static
from onnxbridge.hub.passes.match import behind

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Product:
    """A value times a matrix (the value itself without one), and what is added to that; `of` and `biases` held the numbers."""

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


class Sums:
    """The sums of a loop's body, each value looked at once."""

    def __init__(self, body: ir.Graph) -> None:
        self._body = body
        self._found: dict[ir.Value, tuple[Product, ...]] = {}

    def of(self, value: Any) -> tuple[Product, ...]:
        """The products of which a value is the sum; one of the value itself where nothing is known of it."""
        value = behind(value)
        if value not in self._found:
            node = value.producer()
            made = None
            if node is not None and node.graph is self._body and not node.domain and node.op_type in _FORMULAS:
                made = getattr(self, _FORMULAS[node.op_type])(node, value)
            self._found[value] = made or (Product(value),)
        return self._found[value]

    def _matmul(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        return self._times(node.inputs[0], static(node.inputs[1]), node.inputs[1])

    def _gemm(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        plain = {a: node.attributes[a].as_float() for a in ("alpha", "beta") if a in node.attributes}
        turned = {a: node.attributes[a].as_int() for a in ("transA", "transB") if a in node.attributes}
        matrix = static(node.inputs[1])
        if any(v != 1.0 for v in plain.values()) or turned.get("transA") or matrix is None:
            return None
        made = self._times(node.inputs[0], matrix.T if turned.get("transB") else matrix, node.inputs[1])
        given = node.inputs[2] if len(node.inputs) > 2 else None
        return made if made is None or given is None else self._shifted(made, given)

    def _times(self, value: Any, matrix: Array | None, of: Any) -> tuple[Product, ...] | None:
        if matrix is None or matrix.ndim != 2:
            return None
        joined = behind(value).producer()
        if joined is None or joined.op_type != "Concat" or joined.graph is not self._body or joined.domain:
            return (Product(behind(value), matrix, of),)
        shapes = [v.shape for v in joined.inputs if v is not None]
        widths = [s[-1] for s in shapes if s is not None and len(s) == 2]
        axis = joined.attributes["axis"].as_int()
        if len(widths) != len(joined.inputs) or not all(isinstance(w, int) for w in widths) or axis not in (1, -1):
            return (Product(behind(value), matrix, of),)
        ends = np.cumsum(widths)
        parts = zip(joined.inputs, widths, ends, strict=True)
        return tuple(Product(behind(v), matrix[e - w : e], of) for v, w, e in parts)

    def _add(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        for a, b in (node.inputs, node.inputs[::-1]):
            if static(b) is not None:
                return self._shifted(self.of(a), b)
        first, second = (self.of(v) for v in node.inputs)
        apart = not {p.source for p in first} & {p.source for p in second}
        alike = all(v is not None and v.shape is not None and len(v.shape) == 2 for v in node.inputs)
        return first + second if apart and alike and node.inputs[0].shape[-1] == node.inputs[1].shape[-1] else None  # type: ignore[union-attr,index]

    def _shifted(self, products: tuple[Product, ...], value: Any) -> tuple[Product, ...] | None:
        bias = static(value)
        width = next((p.matrix.shape[1] for p in products if p.matrix is not None), None)
        if bias is None or width is None or bias.size != width or bias.shape[-1:] != (width,):
            return None
        free = next((i for i, p in enumerate(products) if p.bias is None and p.matrix is not None), 0)
        return tuple(p.plus(bias.reshape(-1), value) if i == free else p for i, p in enumerate(products))

    def _split(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
        widths = [o.shape[-1] if o.shape is not None else None for o in node.outputs]
        if shape is None or len(shape) != 2 or axis not in (1, -1) or not all(isinstance(w, int) for w in widths):
            return None
        i, ends = list(node.outputs).index(value), list(accumulate(w for w in widths if isinstance(w, int)))
        return self._cut(node.inputs[0], slice(ends[i - 1] if i else 0, ends[i]))

    def _slice(self, node: ir.Node, value: ir.Value) -> tuple[Product, ...] | None:
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        given = [sizes(v) for v in node.inputs[1:]]
        if shape is None or len(shape) != 2 or len(given) < 3 or any(g is None or len(g) != 1 or g[0] is None for g in given):
            return None
        start, end, axis, step = (*(g[0] for g in given if g is not None), 1)[:4]
        return self._cut(node.inputs[0], slice(start, end)) if axis in (1, -1) and step == 1 else None

    def _cut(self, value: Any, part: slice) -> tuple[Product, ...] | None:
        parts = [p.cut(part) for p in self.of(value)]
        return None if None in parts else tuple(p for p in parts if p is not None)


_FORMULAS = {"MatMul": "_matmul", "Gemm": "_gemm", "Add": "_add", "Split": "_split", "Slice": "_slice"}
