"""Elementwise arithmetic, comparison and logic, and conversion between element types."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.errors import Unsupported

rule.table(
    Acos=tf.acos, Acosh=tf.acosh, Asin=tf.asin, Asinh=tf.asinh, Atan=tf.atan, Atanh=tf.atanh, Ceil=tf.math.ceil, Cos=tf.cos,
    Cosh=tf.cosh, Erf=tf.math.erf, Exp=tf.exp, Floor=tf.floor, IsNaN=tf.math.is_nan, Log=tf.math.log, Neg=tf.negative,
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


@rule("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return tf.math.is_inf(X)
    if not detect_negative and not detect_positive:
        return tf.zeros_like(X, tf.bool)
    return tf.math.is_inf(X) & (X > 0 if detect_positive else X < 0)


@rule("Cast")
def cast(input, *, to, saturate=1, round_mode="up"):
    return converted(input, dtypes.attribute(to), saturate)


@rule("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    return converted(input, target_type.dtype, saturate)


_EIGHT_BIT = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_NARROW = frozenset({"int4", "uint4"})


def converted(input, dtype, saturate):
    source = input.dtype
    if source == dtype:
        return tf.identity(input)
    if dtype == tf.string:
        return _to_string(input)
    if source == tf.string:
        return _from_string(input, dtype)
    if dtype.name in _NARROW:
        # out-of-range values keep their low bits
        low, carrier = (-8, tf.int8) if dtype.name == "int4" else (0, tf.uint8)
        wrapped = tf.math.floormod(tf.cast(converted(input, tf.int32, 1), tf.int32) - low, 16) + low
        return tf.cast(tf.cast(wrapped, carrier), dtype)
    if source.name in _NARROW:
        # int4 converts to other types through a byte only
        return converted(tf.cast(input, tf.int8 if source.name == "int4" else tf.uint8), dtype, saturate)
    if dtype.name in _EIGHT_BIT:
        if source == tf.float64:
            raise Unsupported(f"Cast of float64 to {dtype.name}", "cast to float32 first")
        most = _EIGHT_BIT[dtype.name]
        wide = tf.cast(input, tf.float32)
        clipped = tf.where(tf.math.is_nan(wide), wide, tf.clip_by_value(wide, -most, most))
        return tf.cast(clipped if saturate else wide, dtype)
    return tf.cast(input, dtype)


def _to_string(input):
    """Numbers as strings, as ONNX specifies."""
    if input.dtype.is_integer:
        return tf.strings.as_string(input)
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
    dtype = dtypes.attribute(to)
    if tf.bool in (input.dtype, dtype) and input.dtype != dtype:
        raise Unsupported("BitCast of booleans")
    return tf.bitcast(input, dtype)
