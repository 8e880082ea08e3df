"""Operators of two operands, elementwise."""

from __future__ import annotations

import numba

from onnxbridge.runtime.native.loops.data import floats, longs


@numba.njit(inline="always")
def _of(kind, x, y):
    if kind == 0:
        return x + y
    if kind == 1:
        return x * y
    if kind == 2:
        return x - y
    return x / y


@numba.njit(inline="always")
def _line(kind, x, dx, y, dy, z, count):
    if dx == 1 and dy == 1:
        for i in range(count):
            z[i] = _of(kind, x[i], y[i])
    elif dx == 1 and dy == 0:
        u = y[0]
        for i in range(count):
            z[i] = _of(kind, x[i], u)
    elif dx == 0 and dy == 1:
        u = x[0]
        for i in range(count):
            z[i] = _of(kind, u, y[i])
    else:
        for i in range(count):
            z[i] = _of(kind, x[i * dx], y[i * dy])


def combined(kind, left, right, target, spec, unit, part):
    """z = x op y over four axes: spec has the sizes and the distances of x, of y and of z, whose last axis is dense."""
    s = longs(spec)
    for a in range(unit * s[16], min(s[0], (unit + 1) * s[16])):
        for b in range(s[1]):
            for c in range(s[2]):
                x = floats(left + 4 * (a * s[4] + b * s[5] + c * s[6]))
                y = floats(right + 4 * (a * s[8] + b * s[9] + c * s[10]))
                z = floats(target + 4 * (a * s[12] + b * s[13] + c * s[14]))
                if kind == 0:
                    _line(0, x, s[7], y, s[11], z, s[3])
                elif kind == 1:
                    _line(1, x, s[7], y, s[11], z, s[3])
                elif kind == 2:
                    _line(2, x, s[7], y, s[11], z, s[3])
                else:
                    _line(3, x, s[7], y, s[11], z, s[3])
