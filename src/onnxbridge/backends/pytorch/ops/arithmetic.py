"""Elementwise arithmetic, comparison and logic, and conversion between element types."""

from __future__ import annotations

import functools
import math

import onnx_ir as ir
import torch

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.ops.text import from_string, to_string
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

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
    """The value; uint64, carried as int64, is mapped so that signed comparison orders it."""
    return value ^ _TOP_BIT if value.hub_dtype == ir.DataType.UINT64 else value


@rule("Equal")
def equal(A, B):
    if A.hub_dtype == ir.DataType.STRING:
        return A.tracer.create_proxy("call_function", string_equal, (A, B), {})
    return torch.eq(A, B)


def string_equal(A, B):
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
    return from_ordered(functools.reduce(torch.maximum, map(ordered, data_0)), data_0[0])


@rule("Min")
def min_(*data_0):
    return from_ordered(functools.reduce(torch.minimum, map(ordered, data_0)), data_0[0])


def from_ordered(result, operand):
    return result ^ _TOP_BIT if operand.hub_dtype == ir.DataType.UINT64 else result


@rule("Sum")
def sum_(*data_0):
    return functools.reduce(torch.add, data_0)


@rule("Mean")
def mean(*data_0):
    return functools.reduce(torch.add, data_0) / len(data_0)


@rule("Div")
def div(A, B):
    """Integer division truncates toward zero."""
    if A.hub_dtype == ir.DataType.UINT64:
        return unsigned_divide(A, B)
    return torch.div(A, B, rounding_mode="trunc") if A.dtype in INTEGER else torch.div(A, B)


def unsigned_divide(a, b):
    """Division of uint64 carried as int64: halve, divide, double, correct."""
    halved = (a >> 1) & ~_TOP_BIT
    quotient = torch.div(halved, torch.where(b > 0, b, 1), rounding_mode="floor") << 1
    rest = a - quotient * b
    not_less = (rest ^ _TOP_BIT) >= (b ^ _TOP_BIT)
    small = quotient + not_less.to(torch.int64)
    # the quotient by a divisor with the top bit set is 0 or 1
    large = ((a ^ _TOP_BIT) >= (b ^ _TOP_BIT)).to(torch.int64)
    return torch.where(b < 0, large, small)


@rule("Mod")
def mod(A, B, *, fmod=0):
    if A.hub_dtype == ir.DataType.UINT64:
        return A - unsigned_divide(A, B) * B
    return torch.fmod(A, B) if fmod else torch.remainder(A, B)


@rule("Pow")
def pow_(X, Y):
    """The result has X's type. Integer powers of integers are exact; other powers of integers are computed in float64."""
    if X.hub_dtype == ir.DataType.UINT64:
        raise Unsupported("powers of uint64", "cast to int64 first")
    if X.dtype not in INTEGER:
        return torch.pow(X, converted(Y, X.hub_dtype, saturate=1))
    if Y.dtype in INTEGER:
        return torch.pow(X, Y).to(X.dtype)
    return torch.pow(X.to(torch.float64), Y.to(torch.float64)).to(X.dtype)


@rule("BitShift")
def bit_shift(X, Y, *, direction):
    if direction == "LEFT":
        return torch.bitwise_left_shift(X, Y)
    if X.hub_dtype != ir.DataType.UINT64:
        return torch.bitwise_right_shift(X, Y)
    mask = torch.bitwise_not(torch.bitwise_left_shift(torch.full_like(X, -1), 64 - Y))
    return torch.where(Y == 0, X, torch.bitwise_right_shift(X, Y) & mask)


@rule("Clip")
def clip(input, min=None, max=None):
    if min is None and max is None:
        return input
    if input.hub_dtype == ir.DataType.UINT64:
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
    return converted(input, target_type.hub_dtype, saturate, round_mode)


_PRINTABLE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16})
_ROUNDED_DOWN = 464.0
"""The largest number that rounds to 448, the maximum of float8_e4m3fn."""
_NARROW_RANGES = {"INT4": (-8, 16), "UINT4": (0, 16), "INT2": (-2, 4), "UINT2": (0, 4)}
_VIA_FLOAT = frozenset({ir.DataType.FLOAT8E8M0, ir.DataType.FLOAT4E2M1})
_EIGHT_BIT = frozenset({torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz})


def converted(input, to, saturate, round_mode="up"):
    source = input.hub_dtype
    if source == to:
        return input
    if to == ir.DataType.STRING:
        if not (source.is_integer() or source in _PRINTABLE):
            raise Unsupported(f"Cast of {dtype_name(source)} to string")
        return to_string(input, source.name)
    dtype = dtypes.inside(to)
    if to == ir.DataType.FLOAT4E2M1:
        return to_four_bits(input.to(torch.float32)).to(dtype)
    if to == ir.DataType.FLOAT8E8M0:
        return to_power_of_two(input.to(torch.float32), saturate, round_mode)
    if source in _VIA_FLOAT and not to.is_floating_point():
        input = input.to(torch.float32)
    if to in dtypes.NARROW:
        # out-of-range values keep their low bits
        low, count = _NARROW_RANGES[to.name]
        return (torch.remainder(input.to(torch.int64) - low, count) + low).to(dtype)
    if source == ir.DataType.STRING:
        return from_string(input, dtype)
    if source == ir.DataType.UINT64 and to.is_floating_point():
        # halving keeps the lowest bit, so that rounding is as for the full integer
        halved = ((input >> 1) & ~_TOP_BIT) | (input & 1)
        return torch.where(input < 0, halved.to(dtype) * 2, input.to(dtype))
    if to == ir.DataType.UINT64 and source.is_floating_point():
        high = input.to(torch.float64) >= 2.0**63
        return torch.where(high, (input.to(torch.float64) - 2.0**63).to(torch.int64) ^ _TOP_BIT, input.to(torch.int64))
    if dtype in _EIGHT_BIT:
        if source == ir.DataType.DOUBLE:
            raise Unsupported(f"Cast of float64 to {dtype_name(to)}", "cast to float32 first")
        max_value = torch.finfo(dtype).max
        wide = input.to(torch.float32)
        if saturate:
            return torch.where(torch.isnan(wide), wide, wide.clamp(-max_value, max_value)).to(dtype)
        if dtype == torch.float8_e4m3fn:  # it has no infinity, and PyTorch saturates instead
            wide = torch.where(torch.abs(wide) > _ROUNDED_DOWN, math.nan, wide)
        return wide.to(dtype)
    return input.to(dtype)


def to_four_bits(x):
    """Round to the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, ties to even; NaN becomes 0."""
    size = torch.abs(x)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.nan_to_num(torch.round(torch.clamp(x, -6, 6) / step) * step, nan=0.0)


def to_power_of_two(x, saturate, round_mode):
    """E8M0 represents 2^-127 to 2^127, and NaN as 255. It has no sign, so the magnitude is used."""
    bits = torch.abs(x).view(torch.int32)
    exponent, fraction = bits >> 23, bits & 0x7FFFFF
    # subnormal float32: half of the fraction range is 2^-127
    bound = {"up": (0, 0x400000), "nearest": (0x3FFFFF, 0x600000), "down": (0x7FFFFF, 0x7FFFFF)}[round_mode]
    found = exponent + (fraction > torch.where(exponent > 0, *bound)).to(torch.int32)
    found = torch.where(found > 254, 254 if saturate else 255, found)
    is_nan = torch.isnan(x) if saturate else torch.isnan(x) | torch.isinf(x)
    return torch.where(is_nan, 255, found).to(torch.uint8).view(torch.float8_e8m0fnu)


@rule("BitCast")
def bit_cast(input, *, to):
    to = ir.DataType(to)
    if to in dtypes.NARROW or ir.DataType.STRING in (to, input.hub_dtype) or input.hub_dtype in dtypes.NARROW:
        raise Unsupported(f"BitCast between {dtype_name(input.hub_dtype)} and {dtype_name(to)}")
    carried = {ir.DataType.UINT16: torch.int16, ir.DataType.UINT32: torch.int32}
    bits = input.to(carried[input.hub_dtype]) if input.hub_dtype in carried else input
    return bits.view(carried[to]).to(torch.int64) if to in carried else bits.view(dtypes.inside(to))
