"""Operators of two operands, elementwise."""

from __future__ import annotations

import operator
from typing import Any

from onnxbridge.runtime.native.compiler.kinds import entry
from onnxbridge.runtime.native.loops.data import floats, longs


def _made(operation: Any) -> Any:
    def line(x, dx, y, dy, z, count):
        if dx == 1 and dy == 1:
            for i in range(count):
                z[i] = operation(x[i], y[i])
        elif dx == 1 and dy == 0:
            u = y[0]
            for i in range(count):
                z[i] = operation(x[i], u)
        elif dx == 0 and dy == 1:
            u = x[0]
            for i in range(count):
                z[i] = operation(u, y[i])
        else:
            for i in range(count):
                z[i] = operation(x[i * dx], y[i * dy])

    @entry("ppppu")
    def combined(left, right, target, spec, unit, part):
        """z = x op y over four axes: spec has the sizes and the distances of x, of y and of z, whose last axis is dense."""
        s = longs(spec)
        for a in range(unit * s[16], min(s[0], (unit + 1) * s[16])):
            for b in range(s[1]):
                for c in range(s[2]):
                    x = floats(left + 4 * (a * s[4] + b * s[5] + c * s[6]))
                    y = floats(right + 4 * (a * s[8] + b * s[9] + c * s[10]))
                    z = floats(target + 4 * (a * s[12] + b * s[13] + c * s[14]))
                    line(x, s[7], y, s[11], z, s[3])

    return combined


add, mul, sub, div = map(_made, (operator.add, operator.mul, operator.sub, operator.truediv))
