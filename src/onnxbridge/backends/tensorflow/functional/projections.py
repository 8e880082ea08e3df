"""Products of the last axes of a value with weights, and the bias that is added to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.element_order import Array
from onnxbridge.backends.tensorflow.functional.values import dims, is_float, is_weight, rank, weight


@dataclass(frozen=True)
class Product:
    """A product of a value's last `axes` axes with a matrix.

    Attributes:
        x: the value.
        kernel: the weights, which are `transposed` where they are stored as (columns, rows).
        rows, columns: the sizes of the matrix.
        ends: the last sizes of the result, whose product is `columns`.
        bias: the weights that a Gemm adds.
    """

    node: ir.Node
    x: ir.Value
    kernel: ir.Value
    axes: int
    rows: int
    columns: int
    ends: tuple[int, ...]
    transposed: bool = False
    bias: ir.Value | None = None

    def matrix(self) -> Array:
        """The weights as (rows, columns)."""
        array = weight(self.kernel).array()
        return array.T if self.transposed else array.reshape(self.rows, self.columns)


def product_of(node: ir.Node | None) -> Product | None:
    """The product with weights that a node computes, if it does."""
    if node is None or node.domain or node.op_type not in ("MatMul", "Gemm", "Einsum") or len(node.inputs) < 2:
        return None
    x, kernel = node.inputs[:2]
    if x is None or x.const_value is not None or rank(x) < 2:
        return None
    if kernel is None or not is_weight(kernel) or not is_float(x, kernel):
        return None
    sizes = [d for d in dims(kernel) if d is not None]
    if node.op_type == "Einsum":
        return _einsum(node, x, kernel, sizes)
    if len(sizes) != 2:
        return None
    if node.op_type == "MatMul":
        return Product(node, x, kernel, 1, sizes[0], sizes[1], (sizes[1],))
    numbers = [node.attributes[a].as_float() if a in node.attributes else 1.0 for a in ("alpha", "beta")]
    flags = [node.attributes[a].as_int() if a in node.attributes else 0 for a in ("transA", "transB")]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    rows, columns = reversed(sizes) if flags[1] else sizes
    if numbers != [1.0, 1.0] or flags[0] or (bias is not None and (not is_weight(bias) or dims(bias) != [columns])):
        return None
    return Product(node, x, kernel, 1, rows, columns, (columns,), bool(flags[1]), bias)


def _einsum(node: ir.Node, x: ir.Value, kernel: ir.Value, sizes: list[int]) -> Product | None:
    """An Einsum of the last axes of a value with the first ones of the weights: "abc,cde->abde"."""
    left, _, last = node.attributes["equation"].as_string().replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not all(t.isalpha() and len(set(t)) == len(t) for t in (*terms, last)):
        return None
    common = next((k for k in range(len(terms[1]), 0, -1) if terms[0].endswith(terms[1][:k])), 0)
    kept = terms[0][: len(terms[0]) - common]
    if not common or not kept or last != kept + terms[1][common:] or set(kept) & set(terms[1]) or len(last) == len(kept):
        return None
    ends = tuple(sizes[common:])
    return Product(node, x, kernel, common, int(np.prod(sizes[:common])), int(np.prod(ends)), ends)


def added_weight(node: ir.Node | None) -> tuple[ir.Value, ir.Value] | None:
    """The other operand of a sum with a weight, and the weight."""
    if node is None or node.domain or node.op_type != "Add":
        return None
    for x, bias in (node.inputs[:2], node.inputs[1::-1]):
        if x is not None and bias is not None and x.const_value is None and is_weight(bias) and is_float(x, bias):
            return x, bias
    return None


def bias_of_columns(bias: ir.Value, columns: Array, count: int) -> Array | None:
    """For each of `count` columns the index of the weight that is added to it; `columns` has the column of each element."""
    sizes = tuple(d for d in dims(bias) if d is not None)
    try:
        indices = np.broadcast_to(np.arange(int(np.prod(sizes))).reshape(sizes), columns.shape)
    except ValueError:
        return None
    found = np.full(count, -1)
    found[columns.reshape(-1)] = indices.reshape(-1)
    same = int(np.prod(sizes)) == count and bool((found >= 0).all()) and bool((found[columns] == indices).all())
    return found if same else None
