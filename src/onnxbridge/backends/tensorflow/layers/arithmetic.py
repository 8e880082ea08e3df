"""Elementwise arithmetic as Keras layers and calls of `keras.ops`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.tensorflow.functional.expressions import Expression, Result
from onnxbridge.backends.tensorflow.functional.values import FLOATS, dtype_config, is_float, known, rank, same_size
from onnxbridge.backends.tensorflow.layers import layer

_LARGE = 1 << 20
"""Sums with constants from here on are used to round; they stay as they are written (`ops/arithmetic.py`)."""


def _unary(name: str) -> Callable[..., Expression | None]:
    def call(node: ir.Node, input: ir.Value) -> Expression | None:
        return Expression(f"ops.{name}", (input,)) if is_float(input) and rank(input) >= 0 else None

    return call


for _op, _name in {
    "Neg": "negative", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Erf": "erf", "Sin": "sin", "Cos": "cos", "Floor": "floor",
    "Ceil": "ceil", "Abs": "absolute", "Reciprocal": "reciprocal",
}.items():  # fmt: skip
    layer(_op)(_unary(_name))


def _operand(value: ir.Value) -> Any:
    """An operand: a constant as a number or array, None where it must stay a weight."""
    if value.const_value is None:
        return value if rank(value) >= 0 else None
    array = known(value)
    if array is None or (array.size and float(np.abs(array.astype(np.float64)).max()) >= _LARGE) or array.dtype.name not in (
        "float32", "float64",
    ):  # fmt: skip
        return None
    return float(array) if array.ndim == 0 else array


def _binary(node: ir.Node, a: ir.Value, b: ir.Value, function: str) -> Expression | None:
    operands = [_operand(v) for v in (a, b)] if is_float(a, b) else [None]
    if any(o is None for o in operands) or (a.const_value is not None and b.const_value is not None):
        return None
    return Expression(f"ops.{function}", tuple(operands))


def _merging(kind: str, function: str) -> Callable[..., Expression | None]:
    """An operator that is a merging layer on two activations of the same shape, else a function."""

    def call(node: ir.Node, A: ir.Value, B: ir.Value) -> Expression | None:
        if kind == "Add" and not adds_right(A, B):
            A, B = B, A
            if not adds_right(A, B):
                return None
        known_ranks = rank(A) == rank(B) >= 2 and A.const_value is None and B.const_value is None and is_float(A, B)
        if known_ranks and A is not B and same_size(A, B):
            return Expression(kind, (A, B), dtype_config(A), as_list=True)
        return _binary(node, A, B, function)

    return call


def adds_right(a: ir.Value, b: ir.Value) -> bool:
    """Whether Keras's `add` broadcasts `b` as ONNX does, whatever the dynamic sizes are when it runs.

    Where a single axis of `b` is longer than 1 and as long as the last axis of `a`, or else as its axis 1, Keras adds `b` along
    that axis of `a`, wherever the axis of `b` is.
    """
    if rank(a) < 2 or rank(b) < 1:
        return True
    return all(_adds_along(a, b, axis) for axis in range(-rank(b), 0))


def _adds_along(a: ir.Value, b: ir.Value, axis: int) -> bool:
    """Whether Keras's `add` is right where `axis` (negative) is the only one of `b` that is longer than 1."""
    assert a.shape is not None and b.shape is not None
    size, others = b.shape[axis], [d for i, d in enumerate(b.shape, -rank(b)) if i != axis]
    if size == 1 or any(isinstance(d, int) and d > 1 for d in others):
        return True  # it is not the only one
    if size == 0 or 0 in others or rank(b) > rank(a):
        return False
    second, last = (1 if any(_same(d, o) for o in others) else d for d in (a.shape[1], a.shape[-1]))
    if axis == -1:
        return rank(a) == 2 or _same(last, size) or not _may_be(last, 1) or not _may_be(second, size)
    if axis == 1 - rank(a):
        return not _may_be(last, size)
    return not _may_be(second, size) and not _may_be(last, size)


def _same(a: int | ir.SymbolicDim, b: int | ir.SymbolicDim) -> bool:
    return a == b and (isinstance(a, int) or a.value is not None)


def _may_be(a: int | ir.SymbolicDim, b: int | ir.SymbolicDim) -> bool:
    """Whether two sizes can be equal when the model runs; a dynamic `b` is not 1."""
    return a == b if isinstance(a, int) and isinstance(b, int) else a != 1


layer("Add")(_merging("Add", "add"))
layer("Sub")(_merging("Subtract", "subtract"))
layer("Mul")(_merging("Multiply", "multiply"))


@layer("Div")
def div(node: ir.Node, A: ir.Value, B: ir.Value) -> Expression | None:
    """TensorFlow's optimizer replaces `divide` by a constant with a product with the rounded reciprocal, not `divide_no_nan`."""
    divisor = known(B)
    if B.const_value is None or divisor is None or _is_power_of_two(divisor):
        return _binary(node, A, B, "divide")
    return _binary(node, A, B, "divide_no_nan") if divisor.all() else None


def _is_power_of_two(array: np.ndarray[Any, Any]) -> bool:
    """Whether all elements are powers of two, whose reciprocals are exact."""
    return bool(np.all(np.isfinite(array) & (np.abs(np.frexp(array.astype(np.float64))[0]) == 0.5)))


@layer("Pow")
def pow_(node: ir.Node, X: ir.Value, Y: ir.Value) -> Expression | None:
    return _binary(node, X, Y, "power") if Y.const_value is not None else None


@layer("Max", "Min")
def extreme(node: ir.Node, *data_0: ir.Value) -> Expression | None:
    if len(data_0) != 2:
        return None
    return _binary(node, *data_0, "maximum" if node.op_type == "Max" else "minimum")


@layer("Cast")
def cast(node: ir.Node, input: ir.Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Result | None:
    if input.dtype == to:
        return input
    if input.dtype not in (*FLOATS, ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64) or ir.DataType(to) not in FLOATS:
        return None
    return Expression("ops.cast", (input,), {"dtype": FLOATS[ir.DataType(to)]}) if rank(input) >= 0 else None


@layer("Where")
def where(node: ir.Node, condition: ir.Value, X: ir.Value, Y: ir.Value) -> Expression | None:
    both_known = X.const_value is not None and Y.const_value is not None
    if both_known or not is_float(X, Y) or condition.const_value is not None or rank(condition) < 0:
        return None
    operands = [_operand(v) for v in (X, Y)]
    return None if any(o is None for o in operands) else Expression("ops.where", (condition, *operands))


_COMPARED = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)


def _comparison(function: str) -> Callable[..., Expression | None]:
    def call(node: ir.Node, A: ir.Value, B: ir.Value) -> Expression | None:
        constants = [v.const_value is not None for v in (A, B)]
        arrays = [known(v) if is_constant else None for v, is_constant in zip((A, B), constants, strict=True)]
        if A.dtype not in _COMPARED or A.dtype != B.dtype or all(constants) or min(rank(A), rank(B)) < 0:
            return None
        if any(a is None and is_constant for a, is_constant in zip(arrays, constants, strict=True)):
            return None
        operands = (v if a is None else a.item() if a.ndim == 0 else a for v, a in zip((A, B), arrays, strict=True))
        return Expression(f"ops.{function}", tuple(operands))

    return call


for _op, _name in {
    "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
}.items():  # fmt: skip
    layer(_op)(_comparison(_name))


def _logical(function: str) -> Callable[..., Expression | None]:
    def call(node: ir.Node, A: ir.Value, B: ir.Value) -> Expression | None:
        operands = [v if v.const_value is None else known(v) for v in (A, B)]
        if any(o is None for o in operands) or min(rank(A), rank(B)) < 0 or not any(v.const_value is None for v in (A, B)):
            return None
        return Expression(f"ops.{function}", tuple(operands))

    return call


for _op, _name in {"And": "logical_and", "Or": "logical_or", "Xor": "logical_xor"}.items():
    layer(_op)(_logical(_name))


@layer("Not")
def not_(node: ir.Node, X: ir.Value) -> Expression | None:
    return Expression("ops.logical_not", (X,)) if X.const_value is None and rank(X) >= 0 else None
