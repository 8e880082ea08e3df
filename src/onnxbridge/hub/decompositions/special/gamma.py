"""The gamma function's logarithm and its derivatives, the zeta function, and the incomplete gamma functions."""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.decompositions.special.piecewise_polynomials import horner

D = ir.DataType
# Lanczos approximation with g = 7 and nine terms, in double: relative error below 1e-14
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def log_gamma(op: Any, x: Any) -> Any:
    small = op.Less(x, 0.5)
    z = op.Sub(op.Where(small, op.Sub(1.0, x), x), 1.0)
    total = _LANCZOS[0]
    for i, c in enumerate(_LANCZOS[1:], 1):
        total = op.Add(op.Div(op.constant(np.float64(c)), op.Add(z, float(i))), total)
    t = op.Add(z, 7.5)
    upper = op.Add(op.Sub(op.Mul(op.Add(z, 0.5), op.Log(t)), t), op.Add(op.Log(total), 0.5 * math.log(2 * math.pi)))
    fraction = op.Sub(x, op.Round(x))
    sine = op.Abs(op.Sin(op.Mul(fraction, math.pi)))
    reflected = op.Sub(op.Sub(math.log(math.pi), op.Log(sine)), upper)
    pole = op.And(op.LessOrEqual(x, 0.0), op.Equal(fraction, 0.0))
    result = op.Where(pole, math.inf, op.Where(small, reflected, upper))
    return op.Where(op.IsInf(x), math.inf, result)


@functools.cache
def _bernoulli(count: Any) -> Any:
    """The Bernoulli numbers B(2), B(4), ..."""
    exact = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        exact.append(-sum((math.comb(m + 1, k) * exact[k] for k in range(m)), Fraction(0)) / (m + 1))
    return [float(exact[2 * k]) for k in range(1, count + 1)]


SHIFT = 10
"""By how much recurrences shift arguments up before asymptotic expansions are used."""


def _sequence_from(op: Any, x: Any) -> Any:
    """x, x + 1 ... along a new last axis."""
    return op.Add(op.Unsqueeze(x, [-1]), np.arange(SHIFT, dtype=np.float64))


def digamma(op: Any, x: Any) -> Any:
    small = op.Less(x, 0.5)
    up = op.Where(small, op.Sub(1.0, x), x)
    high = op.Add(up, float(SHIFT))
    z = op.Reciprocal(op.Mul(high, high))
    tail = op.Mul(z, horner(op, z, [b / (2 * k) for k, b in enumerate(_bernoulli(9), 1)]))
    steps = op.ReduceSum(op.Reciprocal(_sequence_from(op, up)), [-1], keepdims=0)
    y = op.Sub(op.Sub(op.Sub(op.Log(high), op.Div(0.5, high)), tail), steps)
    fraction = op.Sub(x, op.Round(x))
    angle = op.Mul(fraction, math.pi)
    reflected = op.Sub(y, op.Div(op.Mul(op.Cos(angle), math.pi), op.Sin(angle)))
    y = op.Where(small, reflected, y)
    y = op.Where(op.And(op.Equal(fraction, 0.0), op.Less(x, 0.0)), math.nan, y)
    return op.Where(op.Equal(x, 0.0), op.Neg(op.Reciprocal(x)), op.Where(op.Equal(x, math.inf), math.inf, y))


def _negative_terms(op: Any, s: Any, q: Any) -> Any:
    """The terms of Hurwitz' zeta function with negative q + k, and q shifted up past them."""
    count = op.Max(op.Ceil(op.Neg(op.Where(op.Or(op.IsNaN(q), op.IsInf(q)), 0.0, q))), 0.0)
    trip_count = op.Cast(op.ReduceMax(op.reshape(count, [-1]), keepdims=0), to=D.INT64)

    def body(iteration: Any, condition: Any, total: Any) -> Any:
        at = op.Add(q, op.Cast(iteration, to=D.DOUBLE))
        below = op.Less(at, 0.0)
        term = op.Pow(op.Where(below, at, 1.0), op.Neg(s))
        return condition, op.Add(total, op.Where(below, term, 0.0))

    zero = op.Mul(op.Where(op.IsInf(q), 0.0, q), 0.0)
    return op.Loop(trip_count, True, op.Where(op.IsNaN(zero), 0.0, zero), body=body), op.Add(q, count)


def zeta(op: Any, s: Any, q: Any) -> Any:
    """Hurwitz' zeta function by Euler-Maclaurin summation."""
    zero = op.Mul(op.Add(op.Where(op.IsInf(s), 0.0, s), op.Where(op.IsInf(q), 0.0, q)), 0.0)
    s, q = op.Add(s, zero), op.Add(q, zero)
    first, up = _negative_terms(op, s, q)
    total = op.Add(first, op.ReduceSum(op.Pow(_sequence_from(op, up), op.Unsqueeze(op.Neg(s), [-1])), [-1], keepdims=0))
    high = op.Add(up, float(SHIFT))
    last = op.Pow(high, op.Neg(s))
    rest = op.Add(op.Div(high, op.Sub(s, 1.0)), 0.5)
    factor = op.Div(s, high)
    for k, b in enumerate(_bernoulli(10), 1):
        rest = op.Add(rest, op.Mul(factor, b / math.factorial(2 * k)))
        factor = op.Mul(factor, op.Div(op.Mul(op.Add(s, 2.0 * k - 1), op.Add(s, 2.0 * k)), op.Mul(high, high)))
    y = op.Add(total, op.Where(op.Equal(last, 0.0), 0.0, op.Mul(last, rest)))
    pole = op.And(op.LessOrEqual(q, 0.0), op.Equal(op.Floor(q), q))
    y = op.Where(op.And(op.Less(q, 0.0), op.Not(op.Equal(s, op.Floor(s)))), math.nan, y)
    y = op.Where(pole, math.inf, y)
    return op.Where(op.Equal(s, 1.0), math.inf, op.Where(op.Less(s, 1.0), math.nan, y))


def polygamma(op: Any, n: int, x: Any) -> Any:
    """The derivative of digamma of order n."""
    if n == 0:
        return digamma(op, x)
    return op.Mul(zeta(op, op.constant(np.float64(n + 1)), x), float((-1) ** (n + 1) * math.factorial(n)))


LONGEST = 2000
EPSILON = 2.0**-53


def _any(op: Any, y: Any) -> Any:
    flat = op.Cast(op.reshape(y, [-1]), to=D.INT32)
    return op.Greater(op.ReduceSum(flat, [0], keepdims=0), 0)


def _lower_series(op: Any, a: Any, x: Any) -> Any:
    """The sum of x**n / ((a + 1) ... (a + n)), until terms are negligible."""

    def body(iteration: Any, condition: Any, term: Any, total: Any) -> Any:
        term = op.Mul(term, op.Div(x, op.Add(a, op.Cast(op.Add(iteration, 1), to=D.DOUBLE))))
        total = op.Add(total, term)
        return _any(op, op.Greater(term, op.Mul(total, EPSILON))), term, total

    one = op.Add(op.Mul(a, 0.0), 1.0)
    return op.Loop(LONGEST, True, one, one, body=body, outputs=2)[1]


def _upper_fraction(op: Any, a: Any, x: Any) -> Any:
    """The continued fraction of the upper incomplete gamma function without its factor, by Lentz' method."""
    tiny = 1e-300

    def body(iteration: Any, condition: Any, c: Any, d: Any, y: Any) -> Any:
        k = op.Cast(op.Add(iteration, 1), to=D.DOUBLE)
        an = op.Mul(k, op.Sub(a, k))
        b = op.Add(op.Sub(x, a), op.Add(op.Mul(k, 2.0), 1.0))
        d = op.Add(op.Mul(an, d), b)
        c = op.Add(b, op.Div(an, c))
        d = op.Reciprocal(op.Where(op.Equal(d, 0.0), tiny, d))
        c = op.Where(op.Equal(c, 0.0), tiny, c)
        change = op.Mul(c, d)
        return _any(op, op.Greater(op.Abs(op.Sub(change, 1.0)), 2 * EPSILON)), c, d, op.Mul(y, change)

    b = op.Add(op.Sub(x, a), 1.0)
    d = op.Reciprocal(op.Where(op.Equal(b, 0.0), tiny, b))
    return op.Loop(LONGEST, True, op.Add(op.Mul(b, 0.0), 1 / tiny), d, d, body=body, outputs=3)[2]


def incomplete_gamma(op: Any, a: Any, x: Any, upper: Any) -> Any:
    """The regularized incomplete gamma functions: a series below x = a, a continued fraction above."""
    zero = op.Mul(op.Add(op.Where(op.IsInf(a), 0.0, a), op.Where(op.IsInf(x), 0.0, x)), 0.0)
    a, x = op.Add(a, zero), op.Add(x, zero)
    is_edge = op.Or(op.Or(op.LessOrEqual(x, 0.0), op.LessOrEqual(a, 0.0)), op.Or(op.IsInf(a), op.IsInf(x)))
    is_edge = op.Or(is_edge, op.IsNaN(zero))
    s, t = op.Where(is_edge, 1.0, a), op.Where(is_edge, 1.0, x)
    above = op.And(op.Greater(t, 1.0), op.Greater(t, s))
    factor = op.Exp(op.Sub(op.Sub(op.Mul(s, op.Log(t)), t), log_gamma(op, s)))
    low = op.Div(op.Mul(factor, _lower_series(op, s, op.Where(above, 1.0, t))), s)
    high = op.Mul(factor, _upper_fraction(op, op.Where(above, s, 1.0), op.Where(above, t, 2.0)))
    y = op.Where(above, high, op.Sub(1.0, low)) if upper else op.Where(above, op.Sub(1.0, high), low)
    none, all_ = map(np.float64, (1.0, 0.0) if upper else (0.0, 1.0))
    at_zero = op.Where(op.Equal(a, 0.0), op.Where(op.Greater(x, 0.0), all_, math.nan), none)
    edge = op.Where(op.Equal(x, 0.0), at_zero, op.Where(op.Equal(a, 0.0), all_, math.nan))
    edge = op.Where(op.And(op.IsInf(x), op.Not(op.IsInf(a))), all_, edge)
    edge = op.Where(op.And(op.IsInf(a), op.Not(op.IsInf(x))), none, edge)
    edge = op.Where(op.Or(op.Or(op.Less(a, 0.0), op.Less(x, 0.0)), op.IsNaN(zero)), math.nan, edge)
    return op.Where(is_edge, edge, y)
