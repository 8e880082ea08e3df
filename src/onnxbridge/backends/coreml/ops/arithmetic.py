"""Elementwise arithmetic, comparison and logic."""

import functools

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import NARROW, cast, hub_dtype, is_float, like, mil_type, wrapped
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import select
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name


def _unary(function):
    return lambda x: function(x=x)


def _binary(function):
    return lambda x, y: function(x=x, y=y)


rule.table(
    Add=_binary(mb.add), Sub=_binary(mb.sub), Mul=_binary(mb.mul), Abs=_unary(mb.abs), Exp=_unary(mb.exp), Sqrt=_unary(mb.sqrt),
    Sin=_unary(mb.sin), Cos=_unary(mb.cos), Tan=_unary(mb.tan), Asin=_unary(mb.asin), Acos=_unary(mb.acos), Atan=_unary(mb.atan),
    Sinh=_unary(mb.sinh), Cosh=_unary(mb.cosh), Atanh=_unary(mb.atanh),
    Greater=_binary(mb.greater), GreaterOrEqual=_binary(mb.greater_equal),
    Less=_binary(mb.less), LessOrEqual=_binary(mb.less_equal),
    And=_binary(mb.logical_and), Or=_binary(mb.logical_or), Xor=_binary(mb.logical_xor), Not=_unary(mb.logical_not),
)  # fmt: skip


def _rounding(function):
    """Rounding functions; ONNX defines them for floats only, so there are no integers to handle."""
    return lambda x: function(x=x)


rule.table(Floor=_rounding(mb.floor), Ceil=_rounding(mb.ceil), Round=_rounding(mb.round), Sign=_unary(mb.sign))


@rule("Neg")
def neg(X):
    return mb.mul(x=X, y=like(X, -1))


@rule("Log")
def log(input):
    return mb.log(x=input, epsilon=like(input, 0))  # MIL adds a nonzero epsilon by default


@rule("Reciprocal")
def reciprocal(X):
    return mb.real_div(x=like(X, 1), y=X)


@rule("Div")
def div(A, B):
    return mb.real_div(x=A, y=B) if is_float(A) else truncated_div(A, B)


def truncated_div(a, b):
    """The integer quotient rounded toward zero: the quotient of the magnitudes, with the sign of the product."""
    sign = mb.mul(x=mb.sign(x=a), y=mb.sign(x=b))
    return mb.mul(x=mb.floor_div(x=mb.abs(x=a), y=mb.abs(x=b)), y=sign)


@rule("Mod")
def mod(A, B, *, fmod=0):
    if not fmod:
        return mb.mod(x=A, y=B)
    if is_float(A):
        magnitude = mb.mod(x=mb.abs(x=A), y=mb.abs(x=B))
        return mb.mul(x=magnitude, y=mb.sign(x=A))
    return mb.sub(x=A, y=mb.mul(x=truncated_div(A, B), y=B))


@rule("Pow")
def pow_(X, Y):
    if X.dtype == Y.dtype and is_float(X):
        return mb.pow(x=X, y=Y)
    if not is_float(X) and not is_float(Y):
        return mb.pow(x=X, y=Y)
    if is_float(X):
        return mb.pow(x=X, y=cast(Y, X.dtype))
    return cast(mb.pow(x=cast(X, Y.dtype), y=Y), X.dtype)


def _fold(function):
    def folded(*data):
        return functools.reduce(lambda x, y: function(x=x, y=y), data)

    return folded


def _mean(*data_0):
    return mb.mul(x=_fold(mb.add)(*data_0), y=like(data_0[0], 1 / len(data_0)))


rule.table(Max=_fold(mb.maximum), Min=_fold(mb.minimum), Sum=_fold(mb.add), Mean=_mean)


@rule("Equal")
def equal(A, B):
    if A.dtype == types.bool:
        return mb.logical_not(x=mb.logical_xor(x=A, y=B))
    return mb.equal(x=A, y=B)


@rule("Where")
def where(condition, X, Y):
    return select(condition, X, Y)


@rule("Clip")
def clip(input, min=None, max=None):
    """Composed of maximum and minimum, since min may be above max, which then wins."""
    if min is not None:
        input = mb.maximum(x=input, y=min)
    return input if max is None else mb.minimum(x=input, y=max)


@rule("IsNaN")
def is_nan(X):
    return mb.not_equal(x=X, y=X)


@rule("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    above = mb.equal(x=X, y=like(X, np.inf))
    below = mb.equal(x=X, y=like(X, -np.inf))
    if detect_negative and detect_positive:
        return mb.logical_or(x=above, y=below)
    if detect_negative or detect_positive:
        return below if detect_negative else above
    return mb.logical_and(x=above, y=below)


@rule("Cast", limits="no strings, no float8; bfloat16 is computed in float32")
def cast_(input, *, to, saturate=1, round_mode="up"):
    dtype = ir.DataType(to)
    target = mil_type(dtype)
    if target == types.bool and input.dtype != types.bool:
        return mb.not_equal(x=input, y=like(input, 0))
    return cast(input, target)


@rule("CastLike", limits="no strings, no float8; bfloat16 is computed in float32")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    if target_type.dtype == types.bool and input.dtype != types.bool:
        return mb.not_equal(x=input, y=like(input, 0))
    return cast(input, target_type.dtype)


@rule("Asinh")
def asinh(input):
    """atanh(x / sqrt(x^2 + 1)) for |x| < 1, which avoids cancellation; else sign(x) * log(|x| + sqrt(x^2 + 1)).

    The latter is computed as log(|x|) + log(1 + sqrt(1 / x^2 + 1)), so that no square overflows.
    """
    one = like(input, 1)
    size = mb.abs(x=input)
    is_small = mb.less(x=size, y=one)
    inside = mb.select(cond=is_small, a=input, b=like(input, 0))
    below = mb.atanh(x=mb.real_div(x=inside, y=mb.sqrt(x=mb.add(x=mb.square(x=inside), y=one))))
    inverse = mb.real_div(x=one, y=mb.maximum(x=size, y=one))
    factor = mb.add(x=mb.sqrt(x=mb.add(x=mb.square(x=inverse), y=one)), y=one)
    zero = like(input, 0)
    above = mb.add(x=mb.log(x=mb.maximum(x=size, y=one), epsilon=zero), y=mb.log(x=factor, epsilon=zero))
    return mb.select(cond=is_small, a=below, b=mb.mul(x=above, y=mb.sign(x=input)))


@rule("Acosh")
def acosh(input):
    """asinh(sqrt(x - 1) * sqrt(x + 1)): x^2 - 1 would lose digits near 1 and overflow sooner."""
    one = like(input, 1)
    return asinh(mb.mul(x=mb.sqrt(x=mb.sub(x=input, y=one)), y=mb.sqrt(x=mb.add(x=input, y=one))))


def _bit_width(x):
    """The bit width of an integer, 32 for wider ones, and whether it is signed."""
    dtype = hub_dtype(x)
    return NARROW.get(dtype, (32, dtype in (ir.DataType.INT32, ir.DataType.INT64)))


def _bits(x):
    """Yield the bits of an integer, the lowest first, as int32 of 0 and 1; the last one is the sign bit."""
    width, _ = _bit_width(x)
    for i in range(min(width, 31)):
        yield mb.mod(x=mb.floor_div(x=x, y=np.int32(1 << i)), y=np.int32(2))
    if width > 31:
        yield mb.cast(x=mb.less(x=x, y=np.int32(0)), dtype="int32")


def _from_bits(bits, x):
    """The integer with these bits."""
    width, signed = _bit_width(x)
    total = None
    for i, bit in enumerate(bits):
        weight = -(1 << i) if signed and i == width - 1 else 1 << i
        inverse = mb.mul(x=bit, y=np.int32(weight if -(1 << 31) <= weight < 1 << 31 else weight - (1 << 32)))
        total = inverse if total is None else mb.add(x=total, y=inverse)
    return total


def _bitwise(pair):
    """A bitwise operator, computed bit by bit in arithmetic, since Core ML has none."""

    def run(A, B):
        return _from_bits([pair(x, y) for x, y in zip(_bits(A), _bits(B), strict=True)], A)

    return run


rule.table(
    BitwiseAnd=_bitwise(lambda x, y: mb.mul(x=x, y=y)),
    BitwiseOr=_bitwise(lambda x, y: mb.maximum(x=x, y=y)),
    BitwiseXor=_bitwise(lambda x, y: mb.abs(x=mb.sub(x=x, y=y))),
)


@rule("BitwiseNot", limits="not uint32 and uint64, which do not fit int32")
def bitwise_not(X):
    width, signed = _bit_width(X)
    if not signed and width > 16:
        raise Unsupported("an unsigned integer of more than 16 bits, which does not fit int32")
    return mb.sub(x=np.int32(-1 if signed else (1 << width) - 1), y=X)


POWERS = (np.int64(1) << np.arange(32)).astype(np.int32)
"""Powers of two; the last one wraps around to -2**31."""


@rule("BitShift")
def bit_shift(X, Y, *, direction):
    """A shift by the bit width or more gives 0; of 64-bit integers only the lower 32 bits are stored."""
    width, _ = _bit_width(X)
    left = direction == "LEFT"
    within = mb.less(x=Y, y=np.int32(min(width, 32 if left else 31)))
    factor = mb.gather(x=POWERS, indices=mb.select(cond=within, a=Y, b=np.int32(0)), axis=0)
    shifted = mb.mul(x=X, y=factor) if left else mb.floor_div(x=X, y=factor)
    return select(within, shifted, np.int32(0))


@rule("BitCast", limits="between integers of the same width, at most 32 bits")
def bit_cast(input, *, to):
    dtype, source = ir.DataType(to), hub_dtype(input)
    if dtype == source:
        return input
    if source == ir.DataType.BOOL:
        return mb.cast(x=input, dtype="int32")
    if not source.is_integer() or dtype not in NARROW:
        raise Unsupported(f"reinterpreting {dtype_name(source)} as {dtype_name(dtype)}")
    return wrapped(input, dtype)
