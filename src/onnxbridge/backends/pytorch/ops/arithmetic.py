"""Elementwise arithmetic, comparison and logic, and conversion between element types."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.ops.text import from_text, to_text
from onnxbridge.errors import Unsupported

rule.table(
    Abs=torch.abs, Acos=torch.acos, Acosh=torch.acosh, Asin=torch.asin, Asinh=torch.asinh, Atan=torch.atan, Atanh=torch.atanh,
    Ceil=torch.ceil, Cos=torch.cos, Cosh=torch.cosh, Erf=torch.erf, Exp=torch.exp, Floor=torch.floor, IsNaN=torch.isnan,
    Log=torch.log, Neg=torch.neg, Reciprocal=torch.reciprocal, Round=torch.round, Sign=torch.sign, Sin=torch.sin,
    Sinh=torch.sinh, Sqrt=torch.sqrt, Tan=torch.tan,
)  # fmt: skip
rule.table(
    Add=torch.add, Sub=torch.sub, Mul=torch.mul, And=torch.logical_and, Or=torch.logical_or, Xor=torch.logical_xor,
    Not=torch.logical_not, BitwiseAnd=torch.bitwise_and, BitwiseOr=torch.bitwise_or, BitwiseXor=torch.bitwise_xor,
    BitwiseNot=torch.bitwise_not, Where=torch.where,
)  # fmt: skip

_TOP_BIT = -(1 << 63)
INTEGER = frozenset({torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool})


def ordered(value):
    """The value, or for an uint64 (carried as int64) one that compares as it does."""
    return value ^ _TOP_BIT if value.hub == ir.DataType.UINT64 else value


@rule("Equal")
def equal(A, B):
    if A.hub == ir.DataType.STRING:
        return A.tracer.create_proxy("call_function", text_equal, (A, B), {})
    return torch.eq(A, B)


def text_equal(A, B):
    return torch.as_tensor(A == B)


@rule("Greater")
def greater(A, B):
    return torch.gt(ordered(A), ordered(B))


@rule("GreaterOrEqual")
def greater_or_equal(A, B):
    return torch.ge(ordered(A), ordered(B))


@rule("Less")
def less(A, B):
    return torch.lt(ordered(A), ordered(B))


@rule("LessOrEqual")
def less_or_equal(A, B):
    return torch.le(ordered(A), ordered(B))


@rule("Max")
def max_(*data_0):
    return ordered_back(functools.reduce(torch.maximum, map(ordered, data_0)), data_0[0])


@rule("Min")
def min_(*data_0):
    return ordered_back(functools.reduce(torch.minimum, map(ordered, data_0)), data_0[0])


def ordered_back(result, operand):
    return result ^ _TOP_BIT if operand.hub == ir.DataType.UINT64 else result


@rule("Sum")
def sum_(*data_0):
    return functools.reduce(torch.add, data_0)


@rule("Mean")
def mean(*data_0):
    return functools.reduce(torch.add, data_0) / len(data_0)


@rule("Div")
def div(A, B):
    """Whole numbers are divided towards zero."""
    if A.hub == ir.DataType.UINT64:
        return unsigned_divide(A, B)
    return torch.div(A, B, rounding_mode="trunc") if A.dtype in INTEGER else torch.div(A, B)


def unsigned_divide(a, b):
    """Division of unsigned 64-bit numbers that are carried as signed ones: halve, divide, double, correct."""
    halved = (a >> 1) & ~_TOP_BIT
    quotient = torch.div(halved, torch.where(b > 0, b, 1), rounding_mode="floor") << 1
    rest = a - quotient * b
    at_least = (rest ^ _TOP_BIT) >= (b ^ _TOP_BIT)
    small = quotient + at_least.to(torch.int64)
    # a divisor with the top bit set goes in once or not at all
    large = ((a ^ _TOP_BIT) >= (b ^ _TOP_BIT)).to(torch.int64)
    return torch.where(b < 0, large, small)


@rule("Mod")
def mod(A, B, *, fmod=0):
    if A.hub == ir.DataType.UINT64:
        return A - unsigned_divide(A, B) * B
    return torch.fmod(A, B) if fmod else torch.remainder(A, B)


@rule("Pow")
def pow_(X, Y):
    """The result has X's type: whole numbers to whole powers stay exact, to others they pass through float64."""
    if X.hub == ir.DataType.UINT64:
        raise Unsupported("powers of uint64, which PyTorch cannot order", "cast to int64 first")
    if X.dtype not in INTEGER:
        return torch.pow(X, converted(Y, X.hub, saturate=1))
    if Y.dtype in INTEGER:
        return torch.pow(X, Y).to(X.dtype)
    return torch.pow(X.to(torch.float64), Y.to(torch.float64)).to(X.dtype)


@rule("BitShift")
def bit_shift(X, Y, *, direction):
    if direction == "LEFT":
        return torch.bitwise_left_shift(X, Y)
    if X.hub != ir.DataType.UINT64:
        return torch.bitwise_right_shift(X, Y)
    kept = torch.bitwise_not(torch.bitwise_left_shift(torch.full_like(X, -1), 64 - Y))
    return torch.where(Y == 0, X, torch.bitwise_right_shift(X, Y) & kept)


@rule("Clip")
def clip(input, min=None, max=None):
    if min is None and max is None:
        return input
    if input.hub == ir.DataType.UINT64:
        raise Unsupported("Clip of uint64")
    return torch.clamp(input, min=min, max=max)


@rule("IsInf")
def is_inf(X, *, detect_negative=1, detect_positive=1):
    if detect_negative and detect_positive:
        return torch.isinf(X)
    if not detect_negative and not detect_positive:
        return torch.zeros_like(X, dtype=torch.bool)
    return torch.isposinf(X) if detect_positive else torch.isneginf(X)


@rule("Cast")
def cast(input, *, to, saturate=1, round_mode="up"):
    return converted(input, ir.DataType(to), saturate, round_mode)


@rule("CastLike")
def cast_like(input, target_type, *, saturate=1, round_mode="up"):
    return converted(input, target_type.hub, saturate, round_mode)


_WRITTEN = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_ROUNDED_DOWN = 464.0
"""The largest number that is still rounded to 448, the largest of e4m3fn."""
_SMALL = {"INT4": (-8, 16), "UINT4": (0, 16), "INT2": (-2, 4), "UINT2": (0, 4)}
_HELD_BY_FLOAT = frozenset({ir.DataType.FLOAT8E8M0, ir.DataType.FLOAT4E2M1})
_EIGHT_BIT = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})


def converted(input, to, saturate, round_mode="up"):
    source = input.hub
    if source == to:
        return input
    if to == ir.DataType.STRING:
        if not (source.is_integer() or source in _WRITTEN):
            raise Unsupported(f"Cast of {source.name.lower()} to string")
        return to_text(input, source.name)
    dtype = dtypes.inside(to)
    if to == ir.DataType.FLOAT4E2M1:
        return to_four_bits(input.to(torch.float32)).to(dtype)
    if to == ir.DataType.FLOAT8E8M0:
        return to_power_of_two(input.to(torch.float32), saturate, round_mode)
    if source in _HELD_BY_FLOAT and not to.is_floating_point():
        input = input.to(torch.float32)
    if to in dtypes.NARROW:
        # what lies outside keeps its low bits
        low, count = _SMALL[to.name]
        return (torch.remainder(input.to(torch.int64) - low, count) + low).to(dtype)
    if source == ir.DataType.STRING:
        return from_text(input, dtype)
    if source == ir.DataType.UINT64 and to.is_floating_point():
        # halved with its lowest bit kept, so that the rounding is that of the whole number
        halved = ((input >> 1) & ~_TOP_BIT) | (input & 1)
        return torch.where(input < 0, halved.to(dtype) * 2, input.to(dtype))
    if to == ir.DataType.UINT64 and source.is_floating_point():
        high = input.to(torch.float64) >= 2.0**63
        return torch.where(high, (input.to(torch.float64) - 2.0**63).to(torch.int64) ^ _TOP_BIT, input.to(torch.int64))
    if dtype in _EIGHT_BIT:
        if source == ir.DataType.DOUBLE:
            raise Unsupported(f"Cast of double to {to.name.lower()}", "cast to float first")
        most = torch.finfo(dtype).max
        wide = input.to(torch.float32)
        if saturate:
            return torch.where(torch.isnan(wide), wide, wide.clamp(-most, most)).to(dtype)
        if dtype == torch.float8_e4m3fn:  # it has no infinity, and PyTorch keeps to its largest number instead
            wide = torch.where(torch.abs(wide) > _ROUNDED_DOWN, math.nan, wide)
        return wide.to(dtype)
    return input.to(dtype)


def to_four_bits(x):
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6 and their negatives, at the same distance the even one; NaN is 0."""
    size = torch.abs(x)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.nan_to_num(torch.round(torch.clamp(x, -6, 6) / step) * step, nan=0.0)


def to_power_of_two(x, saturate, round_mode):
    """E8M0 holds the exponents of 2^-127 to 2^127, and 255 for NaN; it has no sign, so the magnitude is taken."""
    bits = torch.abs(x).view(torch.int32)
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    # below 2^-126 float32 has no leading one: half of its fraction is 2^-127
    bound = {"up": (0, 0x400000), "nearest": (0x3FFFFF, 0x600000), "down": (0x7FFFFF, 0x7FFFFF)}[round_mode]
    found = exponent + (fraction > torch.where(exponent > 0, *bound)).to(torch.int32)
    found = torch.where(found > 254, 254 if saturate else 255, found)
    nothing = torch.isnan(x) if saturate else torch.isnan(x) | torch.isinf(x)
    return torch.where(nothing, 255, found).to(torch.uint8).view(torch.float8_e8m0fnu)


@rule("BitCast")
def bit_cast(input, *, to):
    to = ir.DataType(to)
    if to in dtypes.NARROW or ir.DataType.STRING in (to, input.hub) or input.hub in dtypes.NARROW:
        raise Unsupported(f"BitCast between {input.hub.name.lower()} and {to.name.lower()}")
    carried = {ir.DataType.UINT16: torch.int16, ir.DataType.UINT32: torch.int32}
    bits = input.to(carried[input.hub]) if input.hub in carried else input
    return bits.view(carried[to]).to(torch.int64) if to in carried else bits.view(dtypes.inside(to))
