"""The operators of `mx.np`: NumPy semantics, with boolean comparisons."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import arithmetic, rule
from onnxbridge.frontends.mxnet.ops.reduction import reduced_axes
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.values import cast, is_integer, rank

BOOL = ir.DataType.BOOL
UNARY = {
    "abs": "Abs", "absolute": "Abs", "negative": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "arcsin": "Asin", "arccos": "Acos", "arctan": "Atan", "sinh": "Sinh", "cosh": "Cosh",
    "tanh": "Tanh", "arcsinh": "Asinh", "arccosh": "Acosh", "arctanh": "Atanh", "ceil": "Ceil", "floor": "Floor",
    "reciprocal": "Reciprocal", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip
BINARY = {
    "add": arithmetic.add, "subtract": arithmetic.sub, "multiply": arithmetic.mul, "power": arithmetic.power,
    "maximum": arithmetic.maximum, "minimum": arithmetic.minimum, "mod": arithmetic.mod,
}  # fmt: skip
COMPARED = {
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less", "less_equal": "LessOrEqual",
}  # fmt: skip


def _unary(onnx):
    def lower(op, x):
        return op.call(onnx, x)

    return lower


def _binary(function):
    def lower(op, lhs, rhs):
        return function(op, lhs, rhs)

    return lower


def _compared(onnx):
    def compare(op, a, b):
        return op.call(onnx, a, b)

    return compare


def not_equal(op, a, b):
    return op.Not(op.Equal(a, b))


def _scalar(function, reverse=False):
    """An integer array and a fractional scalar give float64."""

    def lower(op, data, *, scalar=1.0, is_int=True):
        if is_integer(data) and not is_int:
            data = op.Cast(data, to=ir.DataType.DOUBLE)
        number = op.constant(int(scalar) if is_integer(data) else scalar, dtype=data.dtype)
        return function(op, number, data) if reverse else function(op, data, number)

    return lower


def true_divide(op, a, b):
    if is_integer(a):
        raise Unsupported("division of integers is not supported", hint="cast to float32 first")
    return op.Div(a, b)


for _name, _onnx in UNARY.items():
    rule(f"_npi_{_name}")(_unary(_onnx))
_TWO = BINARY | {n: _compared(o) for n, o in COMPARED.items()} | {"not_equal": not_equal, "true_divide": true_divide}
for _name, _function in _TWO.items():
    rule(f"_npi_{_name}")(_binary(_function))
    rule(f"_npi_{_name}_scalar")(_scalar(_function))
for _name, _function in (("subtract", arithmetic.sub), ("power", arithmetic.power), ("mod", arithmetic.mod)):
    rule(f"_npi_r{_name}_scalar")(_scalar(_function, reverse=True))
rule("_npi_rtrue_divide_scalar")(_scalar(true_divide, reverse=True))


@rule("_npi_sign")
def sign(op, x):
    return arithmetic.sign(op, x)


@rule("_npi_hypot")
def hypot(op, x1, x2):
    return arithmetic.hypot(op, x1, x2)


@rule("_npi_logical_not")
def logical_not(op, x):
    return op.Not(cast(op, x, BOOL))


@rule("_npi_square")
def square(op, x):
    return op.Mul(x, x)


@rule("_npi_degrees")
def degrees(op, x):
    return op.Mul(x, 180 / math.pi)


@rule("_npi_radians")
def radians(op, x):
    return op.Mul(x, math.pi / 180)


@rule("_npi_where")
def where(op, condition, x, y):
    return op.Where(cast(op, condition, BOOL), x, y)


@rule("_npi_matmul")
def matmul(op, a, b):
    return op.MatMul(a, b)


def _reduction(onnx):
    def lower(op, a, *, axis=None, dtype=None, keepdims=False, initial=None):
        if initial is not None:
            raise Unsupported("initial is not supported")
        a = a if dtype is None else cast(op, a, named(dtype))
        return op.call(onnx, a, reduced_axes(a, axis, False), keepdims=int(keepdims))

    return lower


def _extreme(onnx):
    def lower(op, a, *, axis=None, keepdims=False, initial=None):
        return _reduction(onnx)(op, a, axis=axis, keepdims=keepdims, initial=initial)

    return lower


rule("_np_sum")(_reduction("ReduceSum"))
rule("_np_prod", "_np_product")(_reduction("ReduceProd"))
rule("_npi_mean")(_reduction("ReduceMean"))
rule("_np_max", "_np_amax")(_extreme("ReduceMax"))
rule("_np_min", "_np_amin")(_extreme("ReduceMin"))


@rule("_np_squeeze")
def squeeze(op, a, *, axis=None):
    if axis is None and not all(isinstance(d, int) for d in a.shape):
        raise Unsupported("squeeze of dynamic dimensions without axis is not supported", hint="pass axis, or static shapes")
    axes = list(as_tuple(axis)) if axis is not None else [i for i, d in enumerate(a.shape) if d == 1]
    return op.Squeeze(a, axes) if axes else op.Identity(a)


@rule("_np_transpose")
def transpose(op, a, *, axes=None):
    order = [d % rank(a) for d in as_tuple(axes)] or list(range(rank(a)))[::-1]
    return op.Transpose(a, perm=order)


@rule("_np_reshape")
def reshape(op, a, *, newshape, order="C"):
    sizes = list(as_tuple(newshape))
    if order != "C" or any(d < -1 for d in sizes):
        raise Unsupported(f"newshape={newshape} in order {order!r} is not supported")
    return op.Reshape(a, sizes, allowzero=1 if 0 in sizes else None)


@rule("_npi_broadcast_to")
def broadcast_to(op, array, *, shape=()):
    return op.Expand(array, list(as_tuple(shape)))


@rule("_npi_pad")
def pad(op, data, *, pad_width, mode="constant", constant_value=0.0, reflect_type="even"):
    if mode not in ("constant", "edge", "reflect") or reflect_type != "even":
        raise Unsupported(f"mode={mode!r} with reflect_type={reflect_type!r} is not supported")
    before, after = zip(*pad_width, strict=True)
    if mode != "constant":
        return op.Pad(data, [*before, *after], mode=mode)
    value = int(constant_value) if is_integer(data) else constant_value
    return op.Pad(data, [*before, *after], op.constant(value, dtype=data.dtype))


@rule("_npi_around")
def around(op, x, *, decimals=0):
    if decimals:
        raise Unsupported(f"decimals={decimals} is not supported")
    return x if is_integer(x) else op.Round(x)


@rule("_npi_argmax")
def argmax(op, data, *, axis=None, keepdims=False):
    if axis is None:
        raise Unsupported("argmax of all elements is not supported", hint="give axis")
    return op.ArgMax(data, axis=axis, keepdims=int(keepdims))


@rule("_npi_det")
def det(op, A):
    return op.Det(A)


@rule("_npi_einsum")
def einsum(op, *operands, subscripts, optimize=0):
    return op.Einsum(*operands, equation=subscripts)


@rule("_npi_tril")
def tril(op, data, *, k=0):
    return op.Trilu(data, op.constant(k, dtype=ir.DataType.INT64), upper=0)


@rule("_npi_full")
def full(op, *, shape=(), value, dtype="float32"):
    return op.constant(np.full(as_tuple(shape), value, named(dtype).numpy()))
