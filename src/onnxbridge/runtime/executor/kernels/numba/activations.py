"""exp, tanh, erf and the activation functions as polynomials that vectorize; at most a few units in the last place off."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper, shared
from onnxbridge.runtime.executor.kernels.numba.memory import floats

_F = np.float32
SOME = 2048  # elements that stay in the L1 cache


@helper
def exp(x):
    """2^n times a polynomial in the rest; beyond float32's range 0 and inf, NaN stays."""
    x = _F(88.8) if x > _F(88.8) else x
    x = _F(-104.0) if x < _F(-104.0) else x
    n = np.floor(x * _F(1.4426950408889634) + _F(0.5))
    r = x - n * _F(0.693359375)
    r = r + n * _F(2.12194440e-4)
    p = _F(1.9875691500e-4) * r + _F(1.3981999507e-3)
    p = p * r + _F(8.3334519073e-3)
    p = p * r + _F(4.1665795894e-2)
    p = p * r + _F(1.6666665459e-1)
    p = p * r + _F(5.0000001201e-1)
    p = p * r * r + r + _F(1.0)
    # In two steps, so that subnormal results and the largest ones keep a valid exponent.
    whole = np.int32(n)
    half = whole >> np.int32(1)
    first = np.int32((half + np.int32(127)) << np.int32(23)).view(np.float32)
    second = np.int32((whole - half + np.int32(127)) << np.int32(23)).view(np.float32)
    return p * first * second


@helper
def expm1(x):
    """exp(x) - 1, near 0 without the difference."""
    p = _F(1.9875691500e-4) * x + _F(1.3981999507e-3)
    p = p * x + _F(8.3334519073e-3)
    p = p * x + _F(4.1665795894e-2)
    p = p * x + _F(1.6666665459e-1)
    p = p * x + _F(5.0000001201e-1)
    near = p * x * x + x
    return near if abs(x) < _F(0.34657359) else exp(x) - _F(1.0)


@helper
def log1p(u):
    """log(1 + u) for u in [0, 1], as twice the inverse hyperbolic tangent of u / (2 + u)."""
    s = u / (_F(2.0) + u)
    q = s * s
    p = _F(6.6666667e-2) * q + _F(7.6923077e-2)
    p = p * q + _F(9.0909091e-2)
    p = p * q + _F(1.1111111e-1)
    p = p * q + _F(1.4285714e-1)
    p = p * q + _F(0.2)
    p = p * q + _F(3.3333333e-1)
    return _F(2.0) * s * (p * q) + _F(2.0) * s


@helper
def log(x):
    """The exponent times log(2), plus a polynomial in the fraction."""
    small = x < _F(1.17549435e-38)
    t = x * _F(33554432.0) if small else x  # 2^25, so that subnormal numbers have an exponent too
    bits = _F(t).view(np.int32)
    m = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)).view(np.float32)
    e = _F((bits >> np.int32(23)) - np.int32(126))
    e = e - _F(25.0) if small else e
    low = m < _F(0.70710678)
    e = e - _F(1.0) if low else e
    r = m + m - _F(1.0) if low else m - _F(1.0)
    p = _F(7.0376836292e-2) * r - _F(1.1514610310e-1)
    p = p * r + _F(1.1676998740e-1)
    p = p * r - _F(1.2420140846e-1)
    p = p * r + _F(1.4249322787e-1)
    p = p * r - _F(1.6668057665e-1)
    p = p * r + _F(2.0000714765e-1)
    p = p * r - _F(2.4999993993e-1)
    p = p * r + _F(3.3333331174e-1)
    z = r * r
    y = p * r * z - e * _F(2.12194440e-4) - _F(0.5) * z
    y = r + y + e * _F(0.693359375)
    y = _F(-np.inf) if x == _F(0.0) else y
    y = x if x == _F(np.inf) else y
    return y if x >= _F(0.0) else _F(np.nan)


@helper
def sigmoid(x):
    return _F(1.0) / (_F(1.0) + exp(-x))


@helper
def tanh(x):
    """An odd polynomial near 0, where the quotient would cancel."""
    a = -x if x < _F(0) else x
    far = _F(1.0) - _F(2.0) / (exp(a + a) + _F(1.0))
    s = x * x
    p = _F(-5.70498872745e-3) * s + _F(2.06390887954e-2)
    p = p * s - _F(5.37397155531e-2)
    p = p * s + _F(1.33314422036e-1)
    p = p * s - _F(3.33332819422e-1)
    near = p * s * x + x
    return near if a < _F(0.625) else (-far if x < _F(0) else far)


@helper
def erf(x):
    """The ratio of polynomials that the NumPy kernel uses too."""
    t = _F(3.925) if x > _F(3.925) else x
    t = _F(-3.925) if t < _F(-3.925) else t
    s = t * t
    p = _F(2.0459913756027674e-6) * s + _F(2.8482558239527475e-4)
    p = p * s + _F(3.772111470476845e-3)
    p = p * s + _F(5.2767910728996906e-2)
    p = p * s + _F(1.9058469113648702e-1)
    p = p * s + _F(1.1283791459215535)
    q = _F(3.804646091829042e-5) * s + _F(1.1637364271191008e-3)
    q = q * s + _F(1.4982323130813407e-2)
    q = q * s + _F(1.1417880510013066e-1)
    q = q * s + _F(5.022340178669356e-1)
    q = q * s + _F(1.0)
    y = t * p / q
    y = _F(1.0) if y > _F(1.0) else y
    return _F(-1.0) if y < _F(-1.0) else y


@shared
def run(kind, y, count, a, b):
    """y = activation(y) over `count` elements at an address."""
    v = floats(y)
    if kind == 1:
        for i in range(count):
            t = v[i] * _F(0.16666667) + _F(0.5)
            t = _F(0.0) if t < _F(0.0) else t
            t = _F(1.0) if t > _F(1.0) else t
            v[i] = v[i] * t
    elif kind == 2:
        for i in range(count):
            t = v[i] * a + b
            t = _F(0.0) if t < _F(0.0) else t
            v[i] = _F(1.0) if t > _F(1.0) else t
    elif kind == 3:
        for i in range(count):
            v[i] = sigmoid(v[i])
    elif kind == 4:
        for i in range(count):
            v[i] = v[i] * sigmoid(v[i] * a)
    elif kind == 5:
        for i in range(count):
            v[i] = v[i] * _F(0.5) * (_F(1.0) + erf(v[i] * _F(0.7071067811865476)))
    elif kind == 6:
        for i in range(count):
            t = v[i]
            v[i] = t * _F(0.5) * (_F(1.0) + tanh(_F(0.7978845608028654) * (t + _F(0.044715) * t * t * t)))
    elif kind == 7:
        for i in range(count):
            v[i] = tanh(v[i])
    elif kind == 8:
        for i in range(count):
            v[i] = v[i] if v[i] >= _F(0.0) else v[i] * a
    elif kind == 9:
        for i in range(count):
            v[i] = exp(v[i])
    elif kind == 10:
        for i in range(count):
            v[i] = erf(v[i])
    elif kind == 11:
        for i in range(count):
            v[i] = np.sqrt(v[i])
    elif kind == 12:
        for i in range(count):
            v[i] = v[i] * v[i]
    elif kind == 13:
        for i in range(count):
            v[i] = v[i] * v[i] * v[i]
    elif kind == 14:
        for i in range(count):
            v[i] = _F(1.0) / v[i]
    elif kind == 15:
        for i in range(count):
            v[i] = abs(v[i])
    elif kind == 16:
        for i in range(count):
            v[i] = -v[i]
    elif kind == 17:
        for i in range(count):
            v[i] = np.floor(v[i])
    elif kind == 18:
        for i in range(count):
            t = v[i]
            v[i] = b * (t if t > _F(0.0) else a * expm1(t))
    elif kind == 19:
        for i in range(count):
            t = v[i]
            e = exp(_F(20.0) if t > _F(20.0) else t)
            e = e * (e + _F(2.0))
            v[i] = t if t > _F(20.0) else t * (e / (e + _F(2.0)))
    elif kind == 20:
        for i in range(count):
            t = v[i]
            v[i] = (t if t > _F(0.0) else _F(0.0)) + log1p(exp(-abs(t)))
    elif kind == 21:
        for i in range(count):
            v[i] = log(v[i])


@entry("ippiiffffu")
def apply(kind, x, y, count, chunk, low, high, a, b, unit, thread):
    """y = activation(x clipped to [low, high]) over `count` elements; NaN stays."""
    end = min(count, (unit + 1) * chunk)
    for at in range(unit * chunk, end, SOME):
        n = min(SOME, end - at)
        u, v = floats(x + 4 * at), floats(y + 4 * at)
        for i in range(n):
            t = u[i]
            t = low if t < low else t
            v[i] = high if t > high else t
        if kind != 0:
            run(kind, y + 4 * at, n, a, b)
