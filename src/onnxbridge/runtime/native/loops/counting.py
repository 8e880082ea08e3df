"""Whole numbers: arithmetic, comparison (of float32 too), and from one type to another, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.runtime.native.compiler.kinds import entry
from onnxbridge.runtime.native.loops.data import floats, ints, longs, octets


def _add(a, b):
    return a + b


def _sub(a, b):
    return a - b


def _mul(a, b):
    return a * b


def _less(a, b):
    return 1 if a < b else 0


def _at_most(a, b):
    return 1 if a <= b else 0


def _equal(a, b):
    return 1 if a == b else 0


def _made(operation: Any, given: Any, result: Any) -> Any:
    @entry("pppiiiiu")
    def combined(left, right, target, dx, dy, count, chunk, unit, part):
        """z = x op y; a distance is 1, or 0 for a single number."""
        x, y, z = given(left), given(right), result(target)
        begin, end = unit * chunk, min(count, (unit + 1) * chunk)
        if dx == 1 and dy == 1:
            for i in range(begin, end):
                z[i] = operation(x[i], y[i])
        elif dx == 1:
            for i in range(begin, end):
                z[i] = operation(x[i], y[0])
        else:
            for i in range(begin, end):
                z[i] = operation(x[0], y[i * dy])

    return combined


def _changed(given: Any, result: Any, kind: Any) -> Any:
    @entry("ppiiu")
    def changed(source, target, count, chunk, unit, part):
        x, y = given(source), result(target)
        for i in range(unit * chunk, min(count, (unit + 1) * chunk)):
            y[i] = kind(x[i])

    return changed


add_long, sub_long, mul_long = (_made(f, longs, longs) for f in (_add, _sub, _mul))
add_int, sub_int, mul_int = (_made(f, ints, ints) for f in (_add, _sub, _mul))
less_long, at_most_long, equal_long = (_made(f, longs, octets) for f in (_less, _at_most, _equal))
less_int, at_most_int, equal_int = (_made(f, ints, octets) for f in (_less, _at_most, _equal))
less_float, at_most_float, equal_float = (_made(f, floats, octets) for f in (_less, _at_most, _equal))
octet_long, octet_int, octet_float = (_changed(octets, *to) for to in ((longs, np.int64), (ints, np.int32), (floats, np.float32)))
int_long, int_float = (_changed(ints, *to) for to in ((longs, np.int64), (floats, np.float32)))
long_int, long_float = (_changed(longs, *to) for to in ((ints, np.int32), (floats, np.float32)))
