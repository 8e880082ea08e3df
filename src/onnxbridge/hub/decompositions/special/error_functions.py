"""The error functions and their inverses."""

from __future__ import annotations

import math
from typing import Any

from onnxbridge.hub.decompositions.special.piecewise_polynomials import PiecewisePolynomial


def _scaled_erfc(t: Any) -> Any:
    """exp(x * x) erfc(x) without its decay, as a function of t = 1 - 8 / (x + 4)."""
    import mpmath as mp

    x = 8 / (1 - t) - 4
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


_ERFCX = PiecewisePolynomial(_scaled_erfc, -1, 1, 32)


def _scaled(op: Any, size: Any) -> Any:
    """erfcx of a non-negative argument."""
    g = _ERFCX(op, op.Sub(1.0, op.Div(8.0, op.Add(size, 4.0))))
    return op.Div(g, op.Add(op.Mul(size, 2.0), 1.0))


def _exp_square(op: Any, size: Any, sign: Any) -> Any:
    """exp(sign * x * x); the square is split in two, as its rounding error would dominate in the tails."""
    high_part = op.Mul(op.Floor(op.Mul(size, 16.0)), 1 / 16)
    rest = op.Mul(op.Sub(size, high_part), op.Add(size, high_part))
    y = op.Mul(op.Exp(op.Mul(op.Mul(high_part, high_part), sign)), op.Exp(op.Mul(rest, sign)))
    return op.Where(op.Greater(size, 1e3), 0.0 if sign < 0 else math.inf, y)


def erfc(op: Any, x: Any) -> Any:
    size = op.Abs(x)
    y = op.Mul(_exp_square(op, size, -1.0), _scaled(op, size))
    return op.Where(op.Less(x, 0.0), op.Sub(2.0, y), y)


def erfcx(op: Any, x: Any) -> Any:
    size = op.Abs(x)
    y = _scaled(op, size)
    return op.Where(op.Less(x, 0.0), op.Sub(op.Mul(_exp_square(op, size, 1.0), 2.0), y), y)


def _inverse_ratio(s: Any) -> Any:
    """erfinv(x) / x as a function of s = sqrt(-log(1 - x * x))."""
    import mpmath as mp

    rest = mp.exp(-s * s)
    x = mp.sqrt(1 - rest)
    target = mp.log(rest / (1 + x))
    start = mp.erfinv(x) if s < 3 else s - mp.log(s) / (2 * s) - mp.mpf(0.6) / s
    return mp.findroot(lambda z: mp.log(mp.erfc(z)) - target, start) / x


_INVERSE = PiecewisePolynomial(_inverse_ratio, 0, 28, 56)


def erfinv(op: Any, x: Any) -> Any:
    rest = op.Mul(op.Sub(1.0, x), op.Add(1.0, x))
    y = op.Mul(x, _INVERSE(op, op.Sqrt(op.Neg(op.Log(rest)))))
    y = op.Where(op.Equal(op.Abs(x), 1.0), op.Mul(x, math.inf), y)
    return op.Where(op.Greater(op.Abs(x), 1.0), math.nan, y)


def ndtri(op: Any, p: Any) -> Any:
    tail = op.Min(p, op.Sub(1.0, p))
    ratio = _INVERSE(op, op.Sqrt(op.Neg(op.Add(op.Log(tail), op.Log(op.Mul(op.Sub(1.0, tail), 4.0))))))
    size = op.Mul(op.Mul(ratio, op.Sub(1.0, op.Mul(tail, 2.0))), math.sqrt(2))
    y = op.Where(op.Equal(tail, 0.0), math.inf, op.Where(op.Less(tail, 0.0), math.nan, size))
    return op.Where(op.Less(p, 0.5), op.Neg(y), y)
