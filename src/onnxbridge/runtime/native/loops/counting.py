"""Whole numbers: arithmetic, comparison (of float32 too), and from one type to another, elementwise."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.native.jit import entry, helper
from onnxbridge.runtime.native.loops.data import floats, ints, longs, octets


@helper
def summed(op, a, b):
    """a op b: Add, Sub or Mul by its number."""
    if op == 0:
        return a + b
    return a - b if op == 1 else a * b


@helper
def ordered(op, a, b):
    """a op b: Less, LessOrEqual or Equal by its number."""
    if op == 0:
        return np.int64(a < b)
    return np.int64(a <= b) if op == 1 else np.int64(a == b)


@helper
def sums(op, x, dx, y, dy, z, begin, end):
    """A distance is 1, or 0 for a single number."""
    if dx == 1 and dy == 1:
        for i in range(begin, end):
            z[i] = summed(op, x[i], y[i])
    else:
        for i in range(begin, end):
            z[i] = summed(op, x[i * dx], y[i * dy])


@helper
def orders(op, x, dx, y, dy, z, begin, end):
    """A distance is 1, or 0 for a single number."""
    if dx == 1 and dy == 1:
        for i in range(begin, end):
            z[i] = ordered(op, x[i], y[i])
    else:
        for i in range(begin, end):
            z[i] = ordered(op, x[i * dx], y[i * dy])


@entry("ipppiiiiu")
def sum_long(op, left, right, target, dx, dy, count, chunk, start_unit, end_unit, part):
    sums(op, longs(left), dx, longs(right), dy, longs(target), start_unit * chunk, min(count, end_unit * chunk))


@entry("ipppiiiiu")
def sum_int(op, left, right, target, dx, dy, count, chunk, start_unit, end_unit, part):
    sums(op, ints(left), dx, ints(right), dy, ints(target), start_unit * chunk, min(count, end_unit * chunk))


@entry("ipppiiiiu")
def order_long(op, left, right, target, dx, dy, count, chunk, start_unit, end_unit, part):
    orders(op, longs(left), dx, longs(right), dy, octets(target), start_unit * chunk, min(count, end_unit * chunk))


@entry("ipppiiiiu")
def order_int(op, left, right, target, dx, dy, count, chunk, start_unit, end_unit, part):
    orders(op, ints(left), dx, ints(right), dy, octets(target), start_unit * chunk, min(count, end_unit * chunk))


@entry("ipppiiiiu")
def order_float(op, left, right, target, dx, dy, count, chunk, start_unit, end_unit, part):
    orders(op, floats(left), dx, floats(right), dy, octets(target), start_unit * chunk, min(count, end_unit * chunk))


@entry("ppiiu")
def octet_long(source, target, count, chunk, start_unit, end_unit, part):
    x, y = octets(source), longs(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.int64(x[i])


@entry("ppiiu")
def octet_int(source, target, count, chunk, start_unit, end_unit, part):
    x, y = octets(source), ints(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.int32(x[i])


@entry("ppiiu")
def octet_float(source, target, count, chunk, start_unit, end_unit, part):
    x, y = octets(source), floats(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.float32(x[i])


@entry("ppiiu")
def int_long(source, target, count, chunk, start_unit, end_unit, part):
    x, y = ints(source), longs(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.int64(x[i])


@entry("ppiiu")
def int_float(source, target, count, chunk, start_unit, end_unit, part):
    x, y = ints(source), floats(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.float32(x[i])


@entry("ppiiu")
def long_int(source, target, count, chunk, start_unit, end_unit, part):
    x, y = longs(source), ints(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.int32(x[i])


@entry("ppiiu")
def long_float(source, target, count, chunk, start_unit, end_unit, part):
    x, y = longs(source), floats(target)
    for i in range(start_unit * chunk, min(count, end_unit * chunk)):
        y[i] = np.float32(x[i])
