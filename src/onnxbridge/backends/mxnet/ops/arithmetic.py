"""Elementwise arithmetic, comparison and logic."""

from __future__ import annotations

import itertools
import math

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, is_float, within
from onnxbridge.errors import Unsupported

UNARY = {
    "Abs": "abs", "Neg": "negative", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Sin": "sin", "Cos": "cos",
    "Tan": "tan", "Asin": "arcsin", "Acos": "arccos", "Atan": "arctan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "arcsinh",
    "Acosh": "arccosh", "Atanh": "arctanh", "Erf": "erf", "Ceil": "ceil", "Floor": "floor", "Reciprocal": "reciprocal",
    "IsNaN": "_npi_isnan", "Not": "_npi_logical_not",
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


@rule("Round")
def round_(sym, X):
    """MXNet does not round float16."""
    return within(sym, sym._npi_around, np.float32 if X.dtype == np.float16 else X.dtype, X)


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
    if not fmod:
        rest = sym._npi_mod(A, B)
        return sym._npi_where(B, rest, np.full((), np.nan, A.dtype)) if is_float(A) else rest
    rest = sym._npi_multiply(sym.sign(A), sym._npi_mod(sym.abs(A), sym.abs(B)))
    return sym._npi_where(B, rest, np.full((), np.nan, A.dtype)) if is_float(A) else rest


@rule("Where")
def where(sym, condition, X, Y):
    shape = sym.expected[0] if sym.expected else None
    if shape is None or len(shape) <= MAX_WHERE_DIMS:
        return sym._npi_where(condition, X, Y)
    groups = _common_groups([v.shape for v in (condition, X, Y)], shape)
    parts = [sym.Reshape(v, shape=g) for v, g in zip((condition, X, Y), groups, strict=True)]
    for part, v in zip(parts, (condition, X, Y), strict=True):
        part.dtype = v.dtype
    return sym.Reshape(sym._npi_where(*parts), shape=shape)


MAX_WHERE_DIMS = 5


def _common_groups(shapes, full):
    """The shapes with neighboring dimensions merged where each operand has both, or neither."""
    if not all(s is not None and all(isinstance(d, int) for d in s) for s in (*shapes, full)):
        raise Unsupported(f"more than {MAX_WHERE_DIMS} dimensions of dynamic size")
    aligned = [(1,) * (len(full) - len(s)) + tuple(s) for s in shapes]
    kinds = [[s[i] == full[i] for s in aligned] for i in range(len(full))]
    starts = [i for i in range(len(full)) if not i or kinds[i] != kinds[i - 1]]
    if len(starts) > MAX_WHERE_DIMS:
        raise Unsupported(f"broadcasting over more than {MAX_WHERE_DIMS} dimensions")
    return [tuple(math.prod(s[a:b]) for a, b in itertools.pairwise([*starts, len(full)])) for s in aligned]


@rule("IsInf")
def is_inf(sym, X, *, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return sym._npi_isinf(X)
    if not (detect_negative or detect_positive):
        return sym._npi_not_equal(X, X) if not is_float(X) else sym._npi_greater(sym.abs(X), np.inf)
    return sym._npi_equal(X, np.inf if detect_positive else -np.inf)


@rule("BitShift")
def bit_shift(sym, X, Y, *, direction):
    """Shifts to the right are logical: the sign of a 64-bit integer, which stands for its highest bit, is shifted apart."""
    wide = X.dtype.itemsize == 8
    two = np.array(2, np.int64 if wide else Y.dtype)
    power = sym._npi_power(sym._npi_multiply(sym.ones_like(Y), two), Y)
    if direction == "LEFT":
        return sym._npi_multiply(X, power)
    if not wide:
        return sym.broadcast_div(X, power)
    rest = sym.broadcast_div(sym._npi_bitwise_and(X, np.array(2**63 - 1)), power)
    top = sym._npi_power(sym._npi_multiply(sym.ones_like(Y), two), sym._npi_subtract(np.array(63), Y))
    negative = sym._npi_less_scalar(X, scalar=0, is_int=True)
    negative.dtype = BOOL
    return sym._npi_add(rest, sym._npi_multiply(cast(sym, negative, np.int64), top))


@rule("Cast")
def cast_(sym, input, *, to, saturate=1, round_mode="up"):
    return _to(sym, input, to)


@rule("CastLike")
def cast_like(sym, input, target_type, *, saturate=1, round_mode="up"):
    return cast(sym, input, target_type.dtype)


def _to(sym, input, to):
    dtype = np.dtype(ir.DataType(to).numpy())
    integers = input.dtype.kind in "iu" and dtype.kind in "iu"
    if np.uint64 in (dtype, input.dtype) and integers and (dtype.kind == "i" or input.dtype.itemsize == 8):
        return sym.Cast(input, dtype=np.dtype(np.int64) if dtype == np.uint64 else dtype)  # int64 with the same bits
    if dtype.name not in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool", "bfloat16"):
        raise Unsupported(f"MXNet cannot cast to {dtype.name}")
    return cast(sym, input, dtype)
