"""Elementwise arithmetic, comparison and logic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, is_float, within
from onnxbridge.errors import Unsupported

UNARY = {
    "Abs": "abs", "Neg": "negative", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos",
    "Tan": "tan", "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "arcsinh",
    "Acosh": "arccosh", "Atanh": "arctanh", "Erf": "erf", "Ceil": "ceil", "Floor": "floor", "Reciprocal": "reciprocal",
    "IsNaN": "_npi_isnan", "Not": "_npi_logical_not", "Round": "_npi_around",
    "BitwiseNot": "_npi_bitwise_not",
}  # fmt: skip
BINARY = {
    "Add": "_npi_add", "Sub": "_npi_subtract", "Mul": "_npi_multiply", "Equal": "_npi_equal", "Greater": "_npi_greater",
    "GreaterOrEqual": "_npi_greater_equal", "Less": "_npi_less", "LessOrEqual": "_npi_less_equal",
    "BitwiseAnd": "_npi_bitwise_and", "BitwiseOr": "_npi_bitwise_or", "BitwiseXor": "_npi_bitwise_xor",
}  # fmt: skip
FOLDS = {"Max": "_npi_maximum", "Min": "_npi_minimum", "Sum": "_npi_add"}


def _plain(op):
    def lower(sym, *inputs):
        return sym.call(op, *inputs)

    return lower


def _folded(op):
    def lower(sym, *inputs):
        total = inputs[0]
        for item in inputs[1:]:
            total = sym.call(op, total, item)
        return total

    return lower


for _name, _op in (UNARY | BINARY).items():
    rule(_name)(_plain(_op))


def _logic(op):
    """Computed on bytes, because MXNet's boolean operators do not broadcast."""

    def lower(sym, A, B):
        return within(sym, lambda a, b: sym.call(op, a, b), np.uint8, A, B)

    return lower


for _name, _op in {"And": "_npi_bitwise_and", "Or": "_npi_bitwise_or", "Xor": "_npi_bitwise_xor"}.items():
    rule(_name)(_logic(_op))
for _name, _op in FOLDS.items():
    rule(_name)(_folded(_op))


@rule("Identity")
def identity(sym, input):
    return input


@rule("Mean")
def mean(sym, *inputs):
    total = _folded("_npi_add")(sym, *inputs)
    return sym._div_scalar(total, scalar=float(len(inputs)), is_int=False)


@rule("Div")
def div(sym, A, B):
    """Integer division truncates toward zero."""
    return sym._npi_true_divide(A, B) if is_float(A) else sym.broadcast_div(A, B)


@rule("Pow")
def pow_(sym, X, Y):
    if is_float(X):
        return sym._npi_power(X, cast(sym, Y, X.dtype))
    if not is_float(Y):
        return sym._npi_power(X, cast(sym, Y, X.dtype))
    return within(sym, sym._npi_power, np.float64, X, Y)


@rule("Mod")
def mod(sym, A, B, *, fmod=0):
    """With `fmod` the remainder has the sign of the dividend. The remainder of a division by zero is NaN, in MXNet 0."""
    if not fmod and is_float(A):
        raise Unsupported("MXNet does not support fmod=0 for floats")
    if not fmod:
        return sym._npi_mod(A, B)
    rest = sym._npi_multiply(sym.sign(A), sym._npi_mod(sym.abs(A), sym.abs(B)))
    return sym._npi_where(B, rest, np.full((), np.nan, A.dtype)) if is_float(A) else rest


@rule("Where")
def where(sym, condition, X, Y):
    return sym._npi_where(condition, X, Y)


@rule("IsInf")
def is_inf(sym, X, *, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return sym._npi_isinf(X)
    if not (detect_negative or detect_positive):
        return sym._npi_not_equal(X, X) if not is_float(X) else sym._npi_greater(sym.abs(X), np.inf)
    return sym._npi_equal(X, np.inf if detect_positive else -np.inf)


@rule("BitShift")
def bit_shift(sym, X, Y, *, direction):
    power = sym._npi_power(sym._plus_scalar(sym.ones_like(Y), scalar=1), Y)
    if X.dtype.itemsize < 8 and direction == "RIGHT":
        return sym.broadcast_div(X, power)
    if direction == "LEFT":
        return sym._npi_multiply(X, power)
    raise Unsupported("shifts of 64-bit integers")


@rule("Cast")
def cast_(sym, input, *, to, saturate=1, round_mode="up"):
    return _to(sym, input, to)


@rule("CastLike")
def cast_like(sym, input, target_type, *, saturate=1, round_mode="up"):
    return cast(sym, input, target_type.dtype)


def _to(sym, input, to):
    dtype = np.dtype(ir.DataType(to).numpy())
    if dtype.name not in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool", "bfloat16"):
        raise Unsupported(f"MXNet cannot cast to {dtype.name}")
    return cast(sym, input, dtype)
