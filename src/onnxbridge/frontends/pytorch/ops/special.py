"""Special functions of the error and gamma function families, computed in double precision."""

import functools
import math
from fractions import Fraction

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.piecewise_polynomials import PiecewisePolynomial, horner, in_float64

D = ir.DataType
# Lanczos approximation with g = 7 and nine terms, in double: relative error below 1e-14
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _scaled_erfc(t):
    """exp(x * x) erfc(x) without its decay, as a function of t = 1 - 8 / (x + 4)."""
    import mpmath as mp

    x = 8 / (1 - t) - 4
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


_ERFCX = PiecewisePolynomial(_scaled_erfc, -1, 1, 32)


def _scaled(op, size):
    """erfcx of a non-negative argument."""
    g = _ERFCX(op, op.Sub(1.0, op.Div(8.0, op.Add(size, 4.0))))
    return op.Div(g, op.Add(op.Mul(size, 2.0), 1.0))


def _exp_square(op, size, sign):
    """exp(sign * x * x); the square is split in two, as its rounding error would dominate in the tails."""
    high_part = op.Mul(op.Floor(op.Mul(size, 16.0)), 1 / 16)
    rest = op.Mul(op.Sub(size, high_part), op.Add(size, high_part))
    y = op.Mul(op.Exp(op.Mul(op.Mul(high_part, high_part), sign)), op.Exp(op.Mul(rest, sign)))
    return op.Where(op.Greater(size, 1e3), 0.0 if sign < 0 else math.inf, y)


def _erfc(op, x):
    size = op.Abs(x)
    y = op.Mul(_exp_square(op, size, -1.0), _scaled(op, size))
    return op.Where(op.Less(x, 0.0), op.Sub(2.0, y), y)


def _erfcx(op, x):
    size = op.Abs(x)
    y = _scaled(op, size)
    return op.Where(op.Less(x, 0.0), op.Sub(op.Mul(_exp_square(op, size, 1.0), 2.0), y), y)


rule("aten::erfc", "aten::special_erfc")(in_float64(_erfc))
rule("aten::special_erfcx")(in_float64(_erfcx))


def _inverse_ratio(s):
    """erfinv(x) / x as a function of s = sqrt(-log(1 - x * x))."""
    import mpmath as mp

    rest = mp.exp(-s * s)
    x = mp.sqrt(1 - rest)
    target = mp.log(rest / (1 + x))
    start = mp.erfinv(x) if s < 3 else s - mp.log(s) / (2 * s) - mp.mpf(0.6) / s
    return mp.findroot(lambda z: mp.log(mp.erfc(z)) - target, start) / x


_INVERSE = PiecewisePolynomial(_inverse_ratio, 0, 28, 56)


def _erfinv(op, x):
    rest = op.Mul(op.Sub(1.0, x), op.Add(1.0, x))
    y = op.Mul(x, _INVERSE(op, op.Sqrt(op.Neg(op.Log(rest)))))
    y = op.Where(op.Equal(op.Abs(x), 1.0), op.Mul(x, math.inf), y)
    return op.Where(op.Greater(op.Abs(x), 1.0), math.nan, y)


def _ndtri(op, p):
    tail = op.Min(p, op.Sub(1.0, p))
    ratio = _INVERSE(op, op.Sqrt(op.Neg(op.Add(op.Log(tail), op.Log(op.Mul(op.Sub(1.0, tail), 4.0))))))
    size = op.Mul(op.Mul(ratio, op.Sub(1.0, op.Mul(tail, 2.0))), math.sqrt(2))
    y = op.Where(op.Equal(tail, 0.0), math.inf, op.Where(op.Less(tail, 0.0), math.nan, size))
    return op.Where(op.Less(p, 0.5), op.Neg(y), y)


rule("aten::erfinv", "aten::special_erfinv")(in_float64(_erfinv))
rule("aten::special_ndtri")(in_float64(_ndtri))


def _log_gamma(op, x):
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


rule("aten::lgamma", "aten::special_gammaln")(in_float64(_log_gamma))


@functools.cache
def _bernoulli(count):
    """The Bernoulli numbers B(2), B(4), ..."""
    exact = [Fraction(1)]
    for m in range(1, 2 * count + 1):
        exact.append(-sum((math.comb(m + 1, k) * exact[k] for k in range(m)), Fraction(0)) / (m + 1))
    return [float(exact[2 * k]) for k in range(1, count + 1)]


SHIFT = 10
"""By how much recurrences shift arguments up before asymptotic expansions are used."""


def _sequence_from(op, x):
    """x, x + 1 ... along a new last axis."""
    return op.Add(op.Unsqueeze(x, [-1]), np.arange(SHIFT, dtype=np.float64))


def _digamma(op, x):
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


rule("aten::digamma", "aten::special_digamma", "aten::special_psi")(in_float64(_digamma))


def _negative_terms(op, s, q):
    """The terms of Hurwitz' zeta function with negative q + k, and q shifted up past them."""
    count = op.Max(op.Ceil(op.Neg(op.Where(op.Or(op.IsNaN(q), op.IsInf(q)), 0.0, q))), 0.0)
    trip_count = op.Cast(op.ReduceMax(op.reshape(count, [-1]), keepdims=0), to=D.INT64)

    def body(iteration, condition, total):
        at = op.Add(q, op.Cast(iteration, to=D.DOUBLE))
        below = op.Less(at, 0.0)
        term = op.Pow(op.Where(below, at, 1.0), op.Neg(s))
        return condition, op.Add(total, op.Where(below, term, 0.0))

    zero = op.Mul(op.Where(op.IsInf(q), 0.0, q), 0.0)
    return op.Loop(trip_count, True, op.Where(op.IsNaN(zero), 0.0, zero), body=body), op.Add(q, count)


def _zeta(op, s, q):
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


rule("aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar")(
    in_float64(_zeta, "self", "other")
)


@rule("aten::polygamma", "aten::special_polygamma")
def polygamma(op, n, self):
    if n == 0:
        return in_float64(_digamma)(op, self)
    factor = float((-1) ** (n + 1) * math.factorial(n))
    return in_float64(lambda op, x: op.Mul(_zeta(op, op.constant(np.float64(n + 1)), x), factor))(op, self)


LONGEST = 2000
EPSILON = 2.0**-53


def _any(op, y):
    flat = op.Cast(op.reshape(y, [-1]), to=D.INT32)
    return op.Greater(op.ReduceSum(flat, [0], keepdims=0), 0)


def _lower_series(op, a, x):
    """The sum of x**n / ((a + 1) ... (a + n)), until terms are negligible."""

    def body(iteration, condition, term, total):
        term = op.Mul(term, op.Div(x, op.Add(a, op.Cast(op.Add(iteration, 1), to=D.DOUBLE))))
        total = op.Add(total, term)
        return _any(op, op.Greater(term, op.Mul(total, EPSILON))), term, total

    one = op.Add(op.Mul(a, 0.0), 1.0)
    return op.Loop(LONGEST, True, one, one, body=body, outputs=2)[1]


def _upper_fraction(op, a, x):
    """The continued fraction of the upper incomplete gamma function without its factor, by Lentz' method."""
    tiny = 1e-300

    def body(iteration, condition, c, d, y):
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


def _incomplete_gamma(op, a, x, upper):
    """The regularized incomplete gamma functions: a series below x = a, a continued fraction above."""
    zero = op.Mul(op.Add(op.Where(op.IsInf(a), 0.0, a), op.Where(op.IsInf(x), 0.0, x)), 0.0)
    a, x = op.Add(a, zero), op.Add(x, zero)
    is_edge = op.Or(op.Or(op.LessOrEqual(x, 0.0), op.LessOrEqual(a, 0.0)), op.Or(op.IsInf(a), op.IsInf(x)))
    is_edge = op.Or(is_edge, op.IsNaN(zero))
    s, t = op.Where(is_edge, 1.0, a), op.Where(is_edge, 1.0, x)
    above = op.And(op.Greater(t, 1.0), op.Greater(t, s))
    factor = op.Exp(op.Sub(op.Sub(op.Mul(s, op.Log(t)), t), _log_gamma(op, s)))
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


rule("aten::igamma", "aten::special_gammainc")(
    in_float64(lambda op, a, x: _incomplete_gamma(op, a, x, upper=False), "self", "other")
)
rule("aten::igammac", "aten::special_gammaincc")(
    in_float64(lambda op, a, x: _incomplete_gamma(op, a, x, upper=True), "self", "other")
)
