"""Matrix products as Keras layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression, Weight
from onnxbridge.backends.tensorflow.functional.projections import Product, added_weight, product_of
from onnxbridge.backends.tensorflow.functional.values import (
    dims,
    dtype_config,
    is_float,
    is_weight,
    only_user,
    rank,
    sizes_of,
    weight,
)
from onnxbridge.backends.tensorflow.layers import layer
from onnxbridge.backends.tensorflow.layers.shape import reshaped


@layer("Gemm")
def gemm(
    node: ir.Node, A: ir.Value, B: ir.Value, C: ir.Value | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Expression | None:  # fmt: skip
    if transA or alpha != 1.0 or (C is not None and beta != 1.0) or not is_float(A, B) or not is_weight(B) or rank(B) != 2:
        return None
    units = sizes_of(B)[0 if transB else 1]
    if C is not None and (not is_weight(C) or dims(C) not in ([units], [1, units])):
        return None
    bias = () if C is None else (weight(C, shape=[units]),)
    return _dense(A, units, weight(B, [1, 0] if transB else None), bias)


@layer("MatMul")
def mat_mul(node: ir.Node, A: ir.Value, B: ir.Value) -> Expression | None:
    """A product with a matrix of weights, with the addition of a bias to it, or of two activations."""
    if not is_float(A, B) or rank(A) < 2 or rank(B) < 2:
        return None
    if B.const_value is None:
        return Expression("ops.matmul", (A, B)) if A.const_value is None else None
    if not is_weight(B) or rank(B) != 2:
        return None
    units = sizes_of(B)[1]
    product = node.outputs[0]
    reshape = only_user(product)
    if reshape is None or reshape.op_type != "Reshape" or reshape.inputs[0] is not product:
        add, bias = _bias(product, units)
        return _dense(A, units, weight(B), ()) if add is None else _dense(A, units, weight(B), bias, (add,))
    add, bias = _bias(reshape.outputs[0], units)
    dense, moved = _dense(A, units, weight(B), bias), reshaped(product, reshape.outputs[0])
    if add is None or dense is None or moved is None:
        return _dense(A, units, weight(B), ())
    return replace(moved, inputs=(dense,), replaces=(reshape, add))


def _bias(x: ir.Value, units: int) -> tuple[ir.Node | None, tuple[Weight, ...]]:
    """The node that adds one weight for each of `units` columns to a product, whose last axis may be split, and the weight."""
    add = only_user(x)
    other = [v for v in add.inputs if v is not x] if add is not None and add.op_type == "Add" else []
    bias = other[0] if other else None
    if bias is None or not is_weight(bias) or not rank(bias) or rank(bias) > rank(x):
        return None, ()
    if sizes_of(bias) != dims(x)[-rank(bias) :] or int(np.prod(sizes_of(bias))) != units:
        return None, ()
    return add, (weight(bias, shape=[units]),)


def _dense(
    x: ir.Value, units: Any, kernel: Weight, bias: tuple[Weight, ...], replaces: tuple[ir.Node, ...] = ()
) -> Expression | None:
    if rank(x) < 2 or dims(x)[-1] is None:
        return None
    config = {"units": units, **({} if bias else {"use_bias": False}), **dtype_config(x)}
    return Expression("Dense", (x,), config, (kernel, *bias), replaces=replaces)


@layer("Einsum")
def einsum(node: ir.Node, *Inputs: ir.Value, equation: str) -> Expression | None:
    if (product := product_of(node)) is not None:
        return _einsum_dense(product, equation.replace(" ", ""))
    if not is_float(*Inputs) or any(v.const_value is not None or rank(v) < 1 for v in Inputs) or "..." in equation:
        return None
    letters = sorted({c for c in equation if c.isalpha()})
    if len(letters) > 26:
        return None
    lower = str.maketrans({c: chr(ord("a") + i) for i, c in enumerate(letters)})  # Keras reads lower case only
    return Expression("ops.einsum", (equation.replace(" ", "").translate(lower), *Inputs))


def _einsum_dense(product: Product, equation: str) -> Expression | None:
    """A product of the last axes with weights, and the addition of a bias to all axes that come from the weights."""
    y, ends = product.node.outputs[0], list(product.ends)
    letters = equation.partition("->")[2][-len(ends) :]
    add = only_user(y)
    added = added_weight(add)
    bias = added[1] if added is not None and dims(added[1]) == ends and dims(y)[-len(ends) :] == ends else None
    config = {
        "equation": equation, "output_shape": tuple(dims(y)[1:]), **({} if bias is None else {"bias_axes": letters}),
        **dtype_config(product.x),
    }  # fmt: skip
    weights = (weight(product.kernel), *(() if bias is None else (weight(bias),)))
    replaced = () if bias is None or add is None else (add,)
    return Expression("EinsumDense", (product.x,), config, weights, replaces=replaced)
