"""Operators of two operands, elementwise."""

from __future__ import annotations

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba.memory import floats, longs


@helper
def apply(op, a, b):
    """a op b: Add, Mul, Sub or Div by its number."""
    if op == 0:
        return a + b
    if op == 1:
        return a * b
    return a - b if op == 2 else a / b


@helper
def line(op, x, dx, y, dy, z, count):
    if dx == 1 and dy == 1:
        for i in range(count):
            z[i] = apply(op, x[i], y[i])
    elif dx == 1 and dy == 0:
        u = y[0]
        for i in range(count):
            z[i] = apply(op, x[i], u)
    elif dx == 0 and dy == 1:
        u = x[0]
        for i in range(count):
            z[i] = apply(op, u, y[i])
    else:
        for i in range(count):
            z[i] = apply(op, x[i * dx], y[i * dy])


@entry("ippppu")
def combined(op, left, right, target, spec, unit, thread):
    """z = x op y over four axes: spec has the sizes and the distances of x, of y and of z, whose last axis is dense."""
    s = longs(spec)
    for a in range(unit * s[16], min(s[0], (unit + 1) * s[16])):
        for b in range(s[1]):
            for c in range(s[2]):
                x = floats(left + 4 * (a * s[4] + b * s[5] + c * s[6]))
                y = floats(right + 4 * (a * s[8] + b * s[9] + c * s[10]))
                z = floats(target + 4 * (a * s[12] + b * s[13] + c * s[14]))
                if op == 0:
                    line(0, x, s[7], y, s[11], z, s[3])
                elif op == 1:
                    line(1, x, s[7], y, s[11], z, s[3])
                elif op == 2:
                    line(2, x, s[7], y, s[11], z, s[3])
                else:
                    line(3, x, s[7], y, s[11], z, s[3])
