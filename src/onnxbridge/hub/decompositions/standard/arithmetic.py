"""Elementwise arithmetic, rounding, NaN and infinity tests and bitwise operators in simpler operators."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir.values import cast, is_integer


@decompose("Neg")
def neg(op, X):
    return op.Mul(X, -1)


@decompose("Reciprocal")
def reciprocal(op, X):
    return op.Div(op.constant(1, dtype=X.dtype), X)


@decompose("Sum")
def sum_(op, *data_0):
    return functools.reduce(op.Add, data_0) if len(data_0) > 1 else op.Identity(data_0[0])


@decompose("Mean")
def mean(op, *data_0):
    return op.Div(functools.reduce(op.Add, data_0), float(len(data_0)))


def _extreme(op, better, values):
    """Reduces values pairwise; NaN propagates."""

    def of_two(a, b):
        is_better = better(a, b)
        return op.Where(is_better if is_integer(a) else op.Or(is_better, op.IsNaN(a)), a, b)

    return functools.reduce(of_two, values) if len(values) > 1 else op.Identity(values[0])


@decompose("Max")
def max_(op, *data_0):
    return _extreme(op, op.Greater, data_0)


@decompose("Min")
def min_(op, *data_0):
    return _extreme(op, op.Less, data_0)


@decompose("Sign")
def sign(op, input):
    zero = op.constant(0, dtype=input.dtype)
    positive = op.Cast(op.Greater(input, zero), to=input.dtype)
    return positive if input.dtype.name.startswith("UINT") else op.Sub(positive, op.Cast(op.Less(input, zero), to=input.dtype))


@decompose("Abs")
def abs_(op, X):
    return op.Identity(X) if X.dtype.name.startswith("UINT") else op.Max(X, op.Neg(X))


@decompose("Ceil")
def ceil(op, X):
    return op.Neg(op.Floor(op.Neg(X)))


@decompose("Round")
def round_(op, X):
    """Rounds half to even: floor(X), plus 1 if the fraction exceeds 0.5, or equals 0.5 and the floor is odd."""
    floor = op.Floor(X)
    fraction = op.Sub(X, floor)
    half = op.Mul(floor, 0.5)
    odd = op.Greater(op.Sub(half, op.Floor(half)), 0.25)
    up = op.Or(op.Greater(fraction, 0.5), op.And(op.Equal(fraction, 0.5), odd))
    return op.Where(op.Equal(X, floor), X, op.Add(floor, op.Cast(up, to=X.dtype)))  # also keeps infinities


@decompose("IsNaN")
def is_nan(op, X):
    return op.Not(op.Equal(X, X))


@decompose("IsInf")
def is_inf(op, X, *, detect_negative=1, detect_positive=1):
    infinities = [np.inf] * bool(detect_positive) + [-np.inf] * bool(detect_negative)
    hits = [op.Equal(X, op.constant(infinity, dtype=X.dtype)) for infinity in infinities]
    return functools.reduce(op.Or, hits) if hits else op.And(op.Equal(X, X), op.constant(np.bool_(False)))


@decompose("Xor")
def xor(op, A, B):
    return op.And(op.Or(A, B), op.Not(op.And(A, B)))


def _as_int64(op, *values):
    """Casts integers to int64; uint64 wraps around."""
    if not all(is_integer(v) for v in values):
        raise Unsupported("bitwise operators on non-integer inputs")
    return [cast(op, v, ir.DataType.INT64) for v in values]


def _common_bits(op, a, b, bits, signed):
    """Bitwise AND of two int64 values, computed from their bits along a new axis."""
    powers = np.int64(1) << np.arange(min(bits, 63), dtype=np.int64)

    def bits_of(v):
        v = op.Unsqueeze(v, [-1])
        return op.Mod(op.Div(op.Sub(v, op.Mod(v, powers)), powers), np.int64(2))

    # ONNX Runtime sums integers in float64, which is exact for 32 bits at a time
    common_bits = op.Mul(bits_of(a), bits_of(b))
    low = op.ReduceSum(op.Mul(common_bits, np.where(powers < 1 << 32, powers, 0)), [-1], keepdims=0)
    if bits > 32:
        high = op.ReduceSum(op.Mul(common_bits, powers >> 32), [-1], keepdims=0)
        low = op.Add(low, op.Mul(high, np.int64(1 << 32)))
    elif signed:
        low = op.Sub(low, op.Mul(op.Div(low, np.int64(1 << bits - 1)), np.int64(1 << bits)))
    if bits < 64:
        return low
    zero = np.int64(0)
    both = op.And(op.Less(a, zero), op.Less(b, zero))
    return op.Add(low, op.Where(both, np.int64(np.iinfo(np.int64).min), zero))


def _bitwise(name, combine):
    def bitwise(op, A, B):
        a, b = _as_int64(op, A, B)
        both = _common_bits(op, a, b, 8 * int(A.dtype.itemsize), A.dtype.name.startswith("INT"))
        return cast(op, combine(op, a, b, both), A.dtype)

    decompose(name)(bitwise)


_bitwise("BitwiseAnd", lambda op, a, b, both: both)
_bitwise("BitwiseOr", lambda op, a, b, both: op.Sub(op.Add(a, b), both))
_bitwise("BitwiseXor", lambda op, a, b, both: op.Sub(op.Add(a, b), op.Mul(both, 2)))


@decompose("BitwiseNot")
def bitwise_not(op, X):
    (x,) = _as_int64(op, X)
    narrow_unsigned = X.dtype.name.startswith("UINT") and X.dtype.itemsize < 8
    all_ones = (1 << 8 * int(X.dtype.itemsize)) - 1 if narrow_unsigned else -1
    return cast(op, op.Sub(np.int64(all_ones), x), X.dtype)


@decompose("BitShift")
def bit_shift(op, X, Y, *, direction):
    """Multiplies or divides by powers of two."""
    bits = 8 * int(X.dtype.itemsize)
    table = (np.uint64(1) << np.arange(bits, dtype=np.uint64)).astype(X.dtype.numpy())
    power = op.Gather(table, op.Cast(Y, to=ir.DataType.INT64), axis=0)
    return (op.Mul if direction == "LEFT" else op.Div)(X, power)
