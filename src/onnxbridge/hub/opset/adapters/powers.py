"""Mod and Pow, decomposed exactly into steps that do not round."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.opset.adapters import down
from onnxbridge.hub.opset.known_values import dtype_of

_DOUBLE, _INT64 = ir.DataType.DOUBLE, ir.DataType.INT64


@down("Mod", to=9)
def mod(op, A, B, *, fmod=0):
    """Division truncates; if the remainder has the wrong sign, the divisor is added once."""
    if not dtype_of(A).is_integer():
        return _float_remainder(op, A, B, fmod)
    dtype = dtype_of(A)
    if dtype.itemsize < 4:
        A, B = (op.Cast(v, to=ir.DataType.INT32) for v in (A, B))
    remainder = op.Sub(A, op.Mul(op.Div(A, B), B))
    if dtype_of(A).name.startswith("INT") and not fmod:

        def negative(v):
            return op.Less(v, op.Sub(v, v))

        wrong = op.And(op.Not(op.Equal(remainder, op.Sub(remainder, remainder))), op.Xor(negative(remainder), negative(B)))
        remainder = op.Add(remainder, op.Mul(B, op.Cast(wrong, to=dtype_of(A))))
    return op.Cast(remainder, to=dtype) if dtype.itemsize < 4 else remainder


# A float32 times an integer below 2^29 is exact in float64; the largest float32 is below 2^277 times the smallest.
_STEPS = 2.0 ** (28 * np.arange(9, -1, -1, dtype=np.float64))
# float64 is divided bit by bit; powers of two are products of three factors, since 2^2100 overflows.
_BITS = np.arange(2100, -1, -1)
_FACTORS = [2.0 ** np.clip(_BITS - start, 0, 1000) for start in (0, 1000, 2000)]


def _float_remainder(op, A, B, fmod):
    """Long division: subtracts the largest multiple of the divisor times decreasing powers of two."""
    dtype = dtype_of(A)
    a, b = (op.Cast(v, to=_DOUBLE) for v in (A, B))
    if A.shape is None or B.shape is None or list(A.shape) != list(B.shape):
        shape = op.Shape(op.Add(a, b))
        a, b = op.Expand(a, shape), op.Expand(b, shape)
    zero, one, largest = (op.constant(v, dtype=_DOUBLE) for v in (0.0, 1.0, np.finfo(np.float64).max))
    # NaN for a zero divisor or an infinite dividend; the dividend itself for an infinite divisor
    none = op.Or(op.Not(op.Or(op.Greater(b, zero), op.Less(b, zero))), op.Greater(op.Abs(a), largest))
    wide = op.Greater(op.Abs(b), largest)
    divisor, start = op.Where(op.Or(none, wide), one, op.Abs(b)), op.Where(op.Or(none, wide), zero, op.Abs(a))
    step, steps = (_bit, _BITS) if dtype == _DOUBLE else (_quotient, _STEPS)
    count = np.array(len(steps), np.int64)
    remainder = op.Loop(count, True, start, body=lambda i, condition, remainder: [condition, step(op, i, remainder, divisor)])
    remainder = op.Where(wide, op.Abs(a), remainder)
    signed = op.Where(op.Less(a, zero), op.Neg(remainder), remainder)
    if not fmod:
        wrong = op.And(op.Xor(op.Less(signed, zero), op.Less(b, zero)), op.Greater(remainder, zero))
        signed = op.Where(wrong, op.Add(signed, b), signed)
    return op.Cast(op.Where(none, op.constant(np.nan, dtype=_DOUBLE), signed), to=dtype)


def _quotient(op, iteration, remainder, divisor):
    """One division step; the rounded quotient may be one too large, which is corrected."""
    part = op.Mul(divisor, op.Gather(_STEPS, iteration, axis=0))
    times = op.Cast(op.Cast(op.Div(remainder, part), to=_INT64), to=_DOUBLE)
    left = op.Sub(remainder, op.Mul(times, part))
    return op.Where(op.Less(left, op.constant(0.0, dtype=_DOUBLE)), op.Add(left, part), left)


def _bit(op, iteration, remainder, divisor):
    part = divisor
    for table in _FACTORS:
        part = op.Mul(part, op.Gather(table, iteration, axis=0))
    return op.Where(op.Less(remainder, part), remainder, op.Sub(remainder, part))


@down("Pow", to=11)
def pow_(op, X, Y):
    """Both operands had the same floating-point dtype; integer powers of int64 are computed in integers."""
    base, exponent = dtype_of(X), dtype_of(Y)
    if base == exponent and not base.is_integer():
        return op.Pow(X, Y)
    if base == _INT64 and exponent.is_integer():
        return _by_squaring(op, X, op.Cast(Y, to=_INT64))
    # float64 is exact for 32-bit integers
    return op.Cast(op.Pow(op.Cast(X, to=_DOUBLE), op.Cast(Y, to=_DOUBLE)), to=base)


def _by_squaring(op, x, y):
    """Exponentiation by squaring; a negative exponent gives the integer part of the reciprocal."""
    zero, one, two = (np.array(n, np.int64) for n in range(3))
    power = op.Add(op.Mul(op.Mul(x, y), zero), one)  # in the shape of the result

    def body(iteration, condition, power, square, remainder):
        half = op.Div(remainder, two)
        odd = op.Sub(remainder, op.Add(half, half))
        power = op.Mul(power, op.Add(op.Mul(odd, op.Sub(square, one)), one))
        return [op.Greater(op.ReduceMax(half, keepdims=0), zero), power, op.Mul(square, square), half]

    power, _, _ = op.Loop(np.array(63, np.int64), True, power, x, op.Abs(y), body=body, outputs=3)
    # only 1 and -1 have an integer reciprocal
    unit = op.Equal(op.Mul(x, x), one)
    return op.Where(op.And(op.Less(y, zero), op.Not(unit)), op.Mul(power, zero), power)
