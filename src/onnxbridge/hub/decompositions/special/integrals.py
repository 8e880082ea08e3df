"""Dawson's function, the exponential, dilogarithm and Fresnel integrals, and the incomplete beta function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from onnxbridge.hub.decompositions.special.gamma import log_gamma
from onnxbridge.hub.decompositions.special.piecewise_polynomials import PiecewisePolynomial


def _mp() -> Any:
    import mpmath

    return mpmath


def _dawson(t: Any) -> Any:
    mp = _mp()
    return mp.sqrt(mp.pi) / 2 * mp.exp(-t * t) * mp.erfi(t)


_DAWSON_NEAR = PiecewisePolynomial(_dawson, 0, 4, 16)
_DAWSON_FAR = PiecewisePolynomial(lambda z: _dawson(4 / z) * 4 / z, 0, 1, 16)
"""x times the function, by z = 4 / x."""


def dawson(op: Any, x: Any) -> Any:
    size = op.Abs(x)
    far = op.Greater(size, 4.0)
    distant = op.Where(far, size, 4.0)
    y = op.Where(far, op.Div(_DAWSON_FAR(op, op.Div(4.0, distant)), distant), _DAWSON_NEAR(op, size))
    return op.Where(op.IsNaN(x), math.nan, op.Mul(op.Sign(x), y))


def _smooth_ei(t: Any) -> Any:
    """Ei without its logarithm: an entire function."""
    mp = _mp()
    return mp.ei(t) - mp.log(t)


def _decaying_ei(z: Any) -> Any:
    """x exp(-x) Ei(x) by z = 16 / x."""
    mp = _mp()
    x = 16 / z
    return mp.ei(x) * mp.exp(-x) * x


_EI_NEAR = PiecewisePolynomial(_smooth_ei, 0, 16, 64)
_EI_FAR = PiecewisePolynomial(_decaying_ei, 0, 1, 64)


def exponential_integral(op: Any, x: Any) -> Any:
    """Ei(x) for positive x."""
    far = op.Greater(x, 16.0)
    distant = op.Where(far, x, 16.0)
    half = op.Exp(op.Mul(distant, 0.5))  # applied twice: exp(x) overflows before the quotient does
    y = op.Mul(op.Mul(half, op.Div(_EI_FAR(op, op.Div(16.0, distant)), distant)), half)
    y = op.Where(far, y, op.Add(_EI_NEAR(op, x), op.Log(x)))
    y = op.Where(op.Equal(x, math.inf), math.inf, y)
    return op.Where(op.Less(x, 0.0), math.nan, y)


def _dilogarithm(t: Any) -> Any:
    return _mp().polylog(2, t).real


_DILOGARITHM = PiecewisePolynomial(_dilogarithm, -1, 0.5, 12)


def spence(op: Any, x: Any) -> Any:
    """The dilogarithm of 1 - x. Arguments above 2 are inverted, and those below 1/2 reflected."""
    large = op.Greater(x, 2.0)
    near = op.Where(large, op.Reciprocal(x), x)
    small = op.Less(near, 0.5)
    value = _DILOGARITHM(op, op.Where(small, near, op.Sub(1.0, near)))
    logs = op.Mul(op.Log(op.Where(op.Equal(near, 0.0), 1.0, near)), op.Log(op.Sub(1.0, op.Where(small, near, 0.0))))
    y = op.Where(small, op.Sub(op.Sub(math.pi**2 / 6, logs), value), value)
    log = op.Log(op.Where(large, x, 1.0))
    y = op.Where(large, op.Sub(op.Mul(op.Mul(log, log), -0.5), y), y)
    return op.Where(op.Less(x, 0.0), math.nan, y)


def _auxiliary(z: Any, kind: str) -> Any:
    """The slowly varying amplitudes f and g of the Fresnel integrals, without their decay, by z = 2 / x."""
    mp = _mp()
    x = 2 / z
    s, c = mp.mpf(1) / 2 - mp.fresnels(x), mp.mpf(1) / 2 - mp.fresnelc(x)
    cos, sin = mp.cospi(x * x / 2), mp.sinpi(x * x / 2)
    if kind == "f":
        return (s * cos - c * sin) * mp.pi * x
    return (c * cos + s * sin) * mp.pi**2 * x**3


_FRESNEL_NEAR = {
    "sin": PiecewisePolynomial(lambda t: _mp().fresnels(t), 0, 2, 16),
    "cos": PiecewisePolynomial(lambda t: _mp().fresnelc(t), 0, 2, 16),
}
_F = PiecewisePolynomial(lambda z: _auxiliary(z, "f"), 0, 1, 16)
_G = PiecewisePolynomial(lambda z: _auxiliary(z, "g"), 0, 1, 16)


def fresnel(op: Any, x: Any, *, kind: str) -> Any:
    """The integral of sin or cos of pi t * t / 2 from 0 to x."""
    size = op.Abs(x)
    far = op.Greater(size, 2.0)
    distant = op.Where(far, op.Where(op.IsInf(size), 1e9, size), 2.0)
    z = op.Div(2.0, distant)
    square = op.Mul(distant, distant)
    f = op.Div(_F(op, z), op.Mul(distant, math.pi))
    g = op.Div(_G(op, z), op.Mul(op.Mul(square, distant), math.pi**2))
    turns = op.Sub(square, op.Mul(op.Floor(op.Mul(square, 0.25)), 4.0))
    angle = op.Mul(turns, math.pi / 2)
    cos, sin = op.Cos(angle), op.Sin(angle)
    wave = op.Add(op.Mul(f, cos), op.Mul(g, sin)) if kind == "sin" else op.Sub(op.Mul(g, cos), op.Mul(f, sin))
    y = op.Where(far, op.Sub(0.5, wave), _FRESNEL_NEAR[kind](op, size))
    return op.Where(op.IsNaN(x), math.nan, op.Mul(op.Sign(x), y))


_FRACTION_STEPS = 300


def incomplete_beta(op: Any, a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function, by the continued fraction of the side on which it converges fast."""
    swapped = op.Greater(x, op.Div(op.Add(a, 1.0), op.Add(op.Add(a, b), 2.0)))
    p, q = op.Where(swapped, b, a), op.Where(swapped, a, b)
    y = op.Where(swapped, op.Sub(1.0, x), x)
    total = op.Add(p, q)
    tiny = 1e-300

    def nonzero(v: Any) -> Any:
        return op.Where(op.Less(op.Abs(v), tiny), tiny, v)

    def advance(factor: Any, c: Any, d: Any, value: Any) -> Any:
        d = op.Reciprocal(nonzero(op.Add(op.Mul(factor, d), 1.0)))
        c = nonzero(op.Add(op.Div(factor, c), 1.0))
        return c, d, op.Mul(value, op.Mul(c, d))

    def step(iteration: Any, condition: Any, c: Any, d: Any, value: Any) -> Any:
        m = op.Add(op.Cast(iteration, to=np.float64), 1.0)
        twice = op.Add(p, op.Mul(m, 2.0))
        even = op.Div(op.Mul(op.Mul(m, op.Sub(q, m)), y), op.Mul(op.Sub(twice, 1.0), twice))
        odd = op.Neg(op.Div(op.Mul(op.Mul(op.Add(p, m), op.Add(total, m)), y), op.Mul(twice, op.Add(twice, 1.0))))
        c, d, value = advance(even, c, d, value)
        return condition, *advance(odd, c, d, value)

    first = op.Reciprocal(nonzero(op.Sub(1.0, op.Div(op.Mul(total, y), op.Add(p, 1.0)))))
    ones = op.Add(op.Mul(first, 0.0), 1.0)
    *_, fraction = op.Loop(np.int64(_FRACTION_STEPS), True, ones, first, first, body=step, outputs=3)
    log = op.Sub(log_gamma(op, total), op.Add(log_gamma(op, p), log_gamma(op, q)))
    log = op.Add(log, op.Add(op.Mul(p, op.Log(y)), op.Mul(q, op.Log(op.Sub(1.0, y)))))
    part = op.Div(op.Mul(op.Exp(log), fraction), p)
    result = op.Where(swapped, op.Sub(1.0, part), part)
    result = op.Where(op.LessOrEqual(x, 0.0), 0.0, op.Where(op.GreaterOrEqual(x, 1.0), 1.0, result))
    outside = op.Or(op.Or(op.Less(x, 0.0), op.Greater(x, 1.0)), op.Or(op.LessOrEqual(a, 0.0), op.LessOrEqual(b, 0.0)))
    return op.Where(outside, math.nan, result)
