"""Elementwise arithmetic, comparison and logic, and conversion between element types."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import onnx_ir as ir
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

D = ir.DataType

rule.table(
    Acos=tf.acos, Acosh=tf.acosh, Asin=tf.asin, Asinh=tf.asinh, Atan=tf.atan, Atanh=tf.atanh, Ceil=tf.math.ceil, Cos=tf.cos,
    Cosh=tf.cosh, Erf=tf.math.erf, Exp=tf.exp, Floor=tf.floor, Log=tf.math.log, Neg=tf.negative,
    Reciprocal=tf.math.reciprocal, Round=tf.round, Sin=tf.sin, Sinh=tf.sinh, Sqrt=tf.sqrt, Tan=tf.tan,
)  # fmt: skip
rule.table(
    Mul=tf.multiply, And=tf.logical_and, Or=tf.logical_or, Xor=tf.math.logical_xor,
    Not=tf.logical_not, BitwiseAnd=tf.bitwise.bitwise_and, BitwiseOr=tf.bitwise.bitwise_or, BitwiseXor=tf.bitwise.bitwise_xor,
    BitwiseNot=tf.bitwise.invert, Where=tf.where, Equal=tf.equal, Greater=tf.greater, GreaterOrEqual=tf.greater_equal,
    Less=tf.less, LessOrEqual=tf.less_equal,
)  # fmt: skip


def _is_large(x):
    """Whether this is a constant so large that adding it to a number loses the fraction."""
    known = tf.get_static_value(x) if x.dtype.is_floating else None
    return known is not None and known.size and np.abs(known.astype(np.float64)).min() >= 0.5 / ml_dtypes.finfo(known.dtype).eps


def _unfoldable(x):
    """A constant as a PlaceholderWithDefault, which Grappler does not fold."""
    return tf.raw_ops.PlaceholderWithDefault(input=x, shape=x.shape)


@rule("Add")
def add(A, B):
    """TensorFlow's graph optimizer (Grappler) reorders chains of sums, so that `(x + c) - c`, which rounds x with a large c,
    would become x.
    """
    if _is_large(B):
        return tf.subtract(A, _unfoldable(-B))
    return tf.subtract(B, _unfoldable(-A)) if _is_large(A) else tf.add(A, B)


@rule("Sub")
def sub(A, B):
    return tf.subtract(_unfoldable(A) if _is_large(A) else A, _unfoldable(B) if _is_large(B) else B)


@rule("Abs")
def abs_(X):
    return tf.identity(X) if X.dtype.is_unsigned else tf.abs(X)


@rule("Sign")
def sign(input):
    if input.dtype.is_unsigned:
        return tf.cast(input > tf.zeros([], input.dtype), input.dtype)
    return tf.sign(input)


def _fold(function):
    def join(*data_0):
        return functools.reduce(function, data_0) if len(data_0) > 1 else tf.identity(data_0[0])

    return join


rule.table(Max=_fold(tf.maximum), Min=_fold(tf.minimum), Sum=_fold(tf.add))


def quotient(a, b):
    """a / b of floats, rounded once, also for a constant b.

    Grappler replaces RealDiv by a constant with a multiplication by its rounded reciprocal, also when a model is loaded. It does
    not change DivNoNan, which differs for a divisor of 0 only.
    """
    known = tf.get_static_value(b)
    if known is None:
        return tf.divide(a, b)
    exact = tf.math.divide_no_nan(a, b)
    return exact if known.all() else tf.where(tf.equal(b, 0), tf.divide(a, b), exact)


@rule("Mean")
def mean(*data_0):
    return quotient(functools.reduce(tf.add, data_0), tf.constant(len(data_0), data_0[0].dtype))


@rule("Div")
def div(A, B):
    """Integer division truncates toward zero."""
    return tf.truncatediv(A, B) if A.dtype.is_integer else quotient(A, B)


@rule("Mod")
def mod(A, B, *, fmod=0):
    if not A.dtype.is_integer:
        if not fmod:
            return tf.math.floormod(A, B)
        wide = tf.float32 if A.dtype.size == 2 else A.dtype
        return tf.cast(tf.truncatemod(tf.cast(A, wide), tf.cast(B, wide)), A.dtype)
    return A - tf.truncatediv(A, B) * B if fmod else tf.math.floormod(A, B)


@rule("Pow")
def pow_(X, Y):
    """The result has X's type. Integer powers of integers are exact; other powers of integers are computed in float64."""
    if not X.dtype.is_integer:
        return tf.pow(X, tf.cast(Y, X.dtype))
    wide = tf.int64 if Y.dtype.is_integer else tf.float64
    return tf.cast(tf.pow(tf.cast(X, wide), tf.cast(Y, wide)), X.dtype)


@rule("BitShift")
def bit_shift(X, Y, *, direction):
    return tf.bitwise.left_shift(X, Y) if direction == "LEFT" else tf.bitwise.right_shift(X, Y)


@rule("Clip")
def clip(input, min=None, max=None):
    input = input if min is None else tf.maximum(input, min)
    return tf.identity(input if max is None else tf.minimum(input, max))


def _wide(x):
    return tf.cast(x, tf.float32) if x.dtype.size == 1 else x


@rule("IsNaN")
def is_nan(X):
    return tf.math.is_nan(_wide(X))


@rule("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    X = _wide(X)
    if detect_negative and detect_positive:
        return tf.math.is_inf(X)
    if not detect_negative and not detect_positive:
        return tf.zeros_like(X, tf.bool)
    return tf.math.is_inf(X) & (X > 0 if detect_positive else X < 0)


@rule("Cast")
def cast(input, *, to, saturate=1, round_mode="up"):
    return converted(input, D(to), saturate, round_mode)


@rule("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    return converted(input, dtypes.hub(target_type), saturate, round_mode)


_INTEGERS = {D.INT4: (-8, 16), D.UINT4: (0, 16), D.INT2: (-2, 4), D.UINT2: (0, 4)}
"""The lowest value and the number of values of types narrower than a byte."""
_EIGHT_BIT = {D.FLOAT8E4M3FN: 448.0, D.FLOAT8E5M2: 57344.0}
"""The maximum of the types that TensorFlow rounds to."""
_ROUNDED = {D.FLOAT4E2M1: (1, 0, 6.0), D.FLOAT8E4M3FNUZ: (3, -7, 240.0), D.FLOAT8E5M2FNUZ: (2, -15, 57344.0)}
"""The bits of the fraction, the least exponent and the maximum of the types that it does not round to."""


def converted(input, to, saturate=1, round_mode="up"):
    """Convert a tensor to a hub type."""
    source, dtype = dtypes.hub(input), dtypes.of(to)
    if source == to:
        return tf.identity(input)
    if to == D.STRING:
        return _to_string(input)
    if source == D.STRING:
        return _from_string(input, dtype)
    if to in _INTEGERS:
        # out-of-range values keep their low bits
        low, count = _INTEGERS[to]
        return tf.cast(tf.math.floormod(tf.cast(converted(input, D.INT32), tf.int32) - low, count) + low, dtype)
    if (to in _EIGHT_BIT or to in _ROUNDED or to == D.FLOAT8E8M0) and source == D.DOUBLE:
        input = _rounded_to_odd(input)
    if to in _EIGHT_BIT:
        most = _EIGHT_BIT[to]
        wide = tf.cast(input, tf.float32)
        clipped = tf.where(tf.math.is_nan(wide), wide, tf.clip_by_value(wide, -most, most))
        return tf.cast(clipped if saturate else wide, dtype)
    if to in _ROUNDED:
        return tf.cast(_rounded(tf.cast(input, tf.float32), to, saturate), dtype)
    if to == D.FLOAT8E8M0:
        return _to_power_of_two(tf.cast(input, tf.float32), saturate, round_mode)
    if source in _EIGHT_BIT and dtype != tf.float32:
        input = tf.cast(input, tf.float32)
    if source.is_floating_point() and to in (D.INT8, D.UINT8, D.INT16, D.UINT16):  # from int32, they keep the low bits
        input = tf.cast(input, tf.int32)
    return tf.cast(input, dtype)


def _rounded_to_odd(x):
    """Float64 as float32, so that rounding it further gives what rounding at once gives: what is between has an odd last bit."""
    nearest = tf.cast(x, tf.float32)
    back = tf.cast(nearest, tf.float64)
    toward_zero = tf.bitcast(nearest, tf.int32) - tf.cast(tf.abs(back) > tf.abs(x), tf.int32)
    odd = tf.bitcast(tf.bitwise.bitwise_or(toward_zero, 1), tf.float32)
    return tf.where((back == x) | tf.math.is_nan(x), nearest, odd)


def _rounded(x, to, saturate):
    """Round float32 to the nearest value of a narrower type, ties to even."""
    fraction, least, most = _ROUNDED[to]
    if to == D.FLOAT4E2M1:  # it has neither NaN nor infinity
        x = tf.where(tf.math.is_nan(x), 0.0, tf.clip_by_value(x, -most, most))
    exponent = tf.maximum(tf.bitwise.right_shift(tf.bitcast(tf.abs(x), tf.int32), 23) - 127, least)
    step = tf.bitcast(tf.bitwise.left_shift(exponent - fraction + 127, 23), tf.float32)
    rounded = tf.round(x / step) * step
    if to == D.FLOAT4E2M1:
        return rounded
    beyond = tf.abs(rounded) > most
    rounded = tf.where(beyond, tf.sign(x) * most if saturate else float("nan"), rounded)
    rounded = tf.where(rounded == 0, 0.0, rounded)  # there is no negative zero
    return tf.where(tf.math.is_nan(x), x, rounded)


def _to_power_of_two(x, saturate, round_mode):
    """E8M0 represents 2^-127 to 2^127, and NaN. It has no sign, so the magnitude is used."""
    bits = tf.bitcast(tf.abs(x), tf.int32)
    exponent, rest = tf.bitwise.right_shift(bits, 23), tf.bitwise.bitwise_and(bits, 0x7FFFFF)
    # subnormal float32: half of the fraction range is 2^-127
    bound = {"up": (0, 0x400000), "nearest": (0x3FFFFF, 0x600000), "down": (0x7FFFFF, 0x7FFFFF)}[round_mode]
    found = exponent + tf.cast(rest > tf.where(exponent > 0, *bound), tf.int32)
    is_nan = tf.math.is_nan(x) if saturate else tf.math.is_nan(x) | tf.math.is_inf(x) | (found > 254)
    biased = tf.cast(tf.minimum(found, 254) - 127 + 1023, tf.int64)
    power = tf.bitcast(tf.bitwise.left_shift(biased, 52), tf.float64)
    return tf.where(is_nan, tf.constant(float("nan"), tf.float64), power)


def _to_string(input):
    """Numbers as strings, as ONNX specifies."""
    if input.dtype.is_integer:
        return tf.strings.as_string(input)
    if input.dtype == tf.bool:
        return tf.where(input, "True", "False")
    if input.dtype not in (tf.float32, tf.float16):
        raise Unsupported(f"Cast of {input.dtype.name} to string")
    wide = tf.cast(input, tf.float32)
    strings = tf.strings.as_string(wide, shortest=True)
    strings = tf.where(tf.math.is_nan(wide), "NaN", strings)
    return tf.where(tf.math.is_inf(wide), tf.where(wide > 0, "INF", "-INF"), strings)


def _from_string(input, dtype):
    if dtype in (tf.float32, tf.float64, tf.int32, tf.int64):
        return tf.strings.to_number(input, dtype)
    return tf.cast(tf.strings.to_number(input, tf.float32 if dtype.is_floating else tf.int64), dtype)


@rule("BitCast")
def bit_cast(input, *, to):
    source, to = dtypes.hub(input), D(to)
    if source == to:
        return tf.identity(input)
    if D.STRING in (source, to) or source in dtypes.CARRIED or to in dtypes.CARRIED:
        raise Unsupported(f"BitCast between {dtype_name(source)} and {dtype_name(to)}")
    if D.BOOL in (source, to):  # a byte that is 0 or 1
        return tf.cast(tf.bitcast(input, tf.uint8) if source != D.BOOL else input, tf.uint8 if source == D.BOOL else tf.bool)
    return tf.bitcast(input, dtypes.of(to))
