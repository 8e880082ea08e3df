"""Bessel functions of orders 0 and 1 and the Airy function: piecewise polynomials near 0, asymptotic expansions beyond."""

from __future__ import annotations

import functools
import math
from typing import Any

from onnxbridge.hub.decompositions.special.piecewise_polynomials import PiecewisePolynomial, horner

FAR = 20.0
"""Beyond it, the asymptotic expansions are exact to double precision."""


def _mp() -> Any:
    import mpmath

    return mpmath


@functools.cache
def _hankel(order: Any, terms: int = 14) -> Any:
    """Coefficients of P and x * Q as polynomials in 1 / x**2, in the asymptotic expansions of the Bessel functions."""
    a = [1.0]
    for k in range(1, 2 * terms):
        a.append(a[-1] * (4 * order * order - (2 * k - 1) ** 2) / (8 * k))
    return [(-1) ** k * a[2 * k] for k in range(terms)], [(-1) ** k * a[2 * k + 1] for k in range(terms)]


def _smooth_j(t: Any, n: Any) -> Any:
    return _mp().besselj(n, t) / t**n


_J = {n: PiecewisePolynomial(functools.partial(_smooth_j, n=n), 0, FAR, 20) for n in (0, 1)}


def _smooth_y(t: Any, n: Any) -> Any:
    """Y without its logarithm and its pole: an entire function."""
    mp = _mp()
    return mp.bessely(n, t) - (mp.log(t) * mp.besselj(n, t) - (1 / t if n else 0)) * 2 / mp.pi


_Y = {n: PiecewisePolynomial(functools.partial(_smooth_y, n=n), 0, FAR, 20) for n in (0, 1)}


def _asymptotic(op: Any, x: Any, order: Any) -> Any:
    """The asymptotic form of J and Y: the amplitude, P and Q, and the cosine and sine of the phase."""
    p, q = _hankel(order)
    z = op.Reciprocal(op.Mul(x, x))
    cos, sin = op.Cos(x), op.Sin(x)
    # cos(x - (2n + 1) pi / 4) without rounding a large x - phase
    first, second = (op.Add(cos, sin), op.Sub(sin, cos)) if order == 0 else (op.Sub(sin, cos), op.Neg(op.Add(cos, sin)))
    return op.Sqrt(op.Div(1 / math.pi, x)), horner(op, z, p), op.Div(horner(op, z, q), x), first, second


def _clamp_to_far(op: Any, x: Any) -> Any:
    """x where it is beyond FAR and a safe value elsewhere; and the mask."""
    far = op.Greater(x, FAR)
    return op.Where(far, x, FAR), far


def bessel_j(op: Any, x: Any, order: Any) -> Any:
    size = op.Abs(x)
    safe, far = _clamp_to_far(op, size)
    amplitude, p, q, cos, sin = _asymptotic(op, safe, order)
    asymptotic = op.Mul(amplitude, op.Sub(op.Mul(p, cos), op.Mul(q, sin)))
    near = _J[order](op, size)
    return op.Where(far, op.Mul(op.Sign(x), asymptotic), op.Mul(x, near)) if order else op.Where(far, asymptotic, near)


def bessel_y(op: Any, x: Any, order: Any) -> Any:
    safe, far = _clamp_to_far(op, x)
    amplitude, p, q, cos, sin = _asymptotic(op, safe, order)
    near = op.Mul(op.Log(x), bessel_j(op, x, order))
    near = op.Sub(near, op.Reciprocal(x)) if order else near
    near = op.Add(op.Mul(near, 2 / math.pi), _Y[order](op, x))
    y = op.Where(far, op.Mul(amplitude, op.Add(op.Mul(p, sin), op.Mul(q, cos))), near)
    return op.Where(op.Less(x, 0.0), math.nan, op.Where(op.Equal(x, 0.0), -math.inf, y))


def _scaled_i(t: Any, n: Any) -> Any:
    """exp(-x) I(x) without its zero and its decay, as a function of t = 1 - 16 / (x + 8)."""
    mp = _mp()
    x = 16 / (1 - t) - 8
    return mp.besseli(n, x) * mp.exp(-x) * mp.sqrt(1 + x) * ((1 + x) / x if n else 1)


_I = {n: PiecewisePolynomial(functools.partial(_scaled_i, n=n), -1, 1, 64) for n in (0, 1)}


def bessel_ie(op: Any, x: Any, order: Any) -> Any:
    """exp(-|x|) I(x)."""
    size = op.Abs(x)
    g = _I[order](op, op.Sub(1.0, op.Div(16.0, op.Add(size, 8.0))))
    y = op.Div(g, op.Sqrt(op.Add(size, 1.0)))
    if not order:
        return y
    return op.Where(op.IsInf(x), 0.0, op.Div(op.Mul(y, x), op.Add(size, 1.0)))


def bessel_i(op: Any, x: Any, order: Any) -> Any:
    half = op.Exp(op.Mul(op.Abs(x), 0.5))  # applied twice: exp(x) overflows before the product does
    return op.Mul(op.Mul(half, bessel_ie(op, x, order)), half)


def _smooth_k(t: Any, n: Any) -> Any:
    mp = _mp()
    log = mp.log(t / 2) * mp.besseli(n, t)
    return mp.besselk(1, t) - log - 1 / t if n else mp.besselk(0, t) + log


def _scaled_k(z: Any, n: Any) -> Any:
    mp = _mp()
    t = 2 / z
    return mp.besselk(n, t) * mp.exp(t) * mp.sqrt(t)


_K_NEAR = {n: PiecewisePolynomial(functools.partial(_smooth_k, n=n), 0, 2, 4) for n in (0, 1)}
_K_FAR = {n: PiecewisePolynomial(functools.partial(_scaled_k, n=n), 0, 1, 16) for n in (0, 1)}


def bessel_k(op: Any, x: Any, order: Any, scaled: Any) -> Any:
    close = op.LessOrEqual(x, 2.0)
    log = op.Mul(op.Log(op.Mul(x, 0.5)), bessel_i(op, op.Where(close, x, 1.0), order))
    near = op.Add(op.Add(log, op.Reciprocal(x)), _K_NEAR[order](op, x)) if order else op.Sub(_K_NEAR[0](op, x), log)
    far = op.Div(_K_FAR[order](op, op.Div(2.0, op.Where(close, 2.0, x))), op.Sqrt(x))
    if scaled:
        near = op.Mul(near, op.Exp(op.Where(close, x, 0.0)))
    else:
        far = op.Mul(far, op.Exp(op.Neg(x)))
    y = op.Where(close, near, far)
    return op.Where(op.Less(x, 0.0), math.nan, op.Where(op.Equal(x, 0.0), math.inf, y))


def spherical_bessel_j0(op: Any, x: Any) -> Any:
    y = op.Div(op.Sin(x), op.Where(op.Equal(x, 0.0), 1.0, x))
    return op.Where(op.IsInf(x), 0.0, op.Where(op.Equal(x, 0.0), 1.0, y))


_AIRY_NEAR = PiecewisePolynomial(lambda t: _mp().airyai(t), -12, 4, 32)


def _airy_decay(z: Any) -> Any:
    """Ai(x) without its decay, as a function of z = 4 / x."""
    mp = _mp()
    x = 4 / z
    return mp.airyai(x) * mp.exp(x ** mp.mpf(1.5) * 2 / 3) * mp.root(x, 4)


_AIRY_FAR = PiecewisePolynomial(_airy_decay, 0, 1, 32)


@functools.cache
def _airy_coefficients(terms: int = 10) -> Any:
    """Coefficients of the two sums in 1 / zeta**2 of the asymptotic expansion of Ai at minus infinity."""
    u = [1.0]
    for k in range(1, 2 * terms):
        u.append(u[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return [(-1) ** k * u[2 * k] for k in range(terms)], [(-1) ** k * u[2 * k + 1] for k in range(terms)]


def airy_ai(op: Any, x: Any) -> Any:
    decaying = op.Greater(x, 4.0)
    high = op.Where(decaying, x, 4.0)
    zeta = op.Mul(op.Mul(high, op.Sqrt(high)), 2 / 3)
    tail = op.Mul(_AIRY_FAR(op, op.Div(4.0, high)), op.Div(op.Exp(op.Neg(zeta)), op.Sqrt(op.Sqrt(high))))
    oscillating = op.Less(x, -12.0)
    low = op.Where(oscillating, op.Neg(x), 12.0)
    zeta = op.Mul(op.Mul(low, op.Sqrt(low)), 2 / 3)
    z = op.Reciprocal(op.Mul(zeta, zeta))
    even, odd = _airy_coefficients()
    cos, sin = op.Cos(zeta), op.Sin(zeta)
    asymptotic = op.Mul(horner(op, z, even), op.Add(cos, sin))
    asymptotic = op.Add(asymptotic, op.Mul(op.Div(horner(op, z, odd), zeta), op.Sub(sin, cos)))
    asymptotic = op.Div(asymptotic, op.Mul(op.Sqrt(op.Sqrt(low)), math.sqrt(2 * math.pi)))
    y = op.Where(decaying, tail, op.Where(oscillating, asymptotic, _AIRY_NEAR(op, x)))
    return op.Where(op.IsInf(x), math.nan, y)
