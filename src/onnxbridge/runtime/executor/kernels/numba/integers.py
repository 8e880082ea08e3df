"""Convolutions and sums of bytes: exact sums in int32, then one factor for each channel, rounding and clipping."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.byte_tiles import load
from onnxbridge.runtime.executor.kernels.compile.jit import entry, external, helper, shared
from onnxbridge.runtime.executor.kernels.numba.convolution import addresses, advance, part_of
from onnxbridge.runtime.executor.kernels.numba.memory import (
    BYTE_LANES,
    BYTE_PANEL,
    BYTE_ROWS,
    floats,
    int8s,
    ints,
    longs,
    uint8s,
)
from onnxbridge.runtime.executor.kernels.numba.tiles import plain_bytes

_F = np.float32

load()
byte_product = external("onnxbridge_bytes", "iiiiiii", plain_bytes)


@shared
def requantize(kind, sums, out, count, offset, factor, shift, zero, low, high):
    """A row of sums as float32 (kind 0), rounded to uint8 or int8 (1 and 2), or as they are (3)."""
    s, o = ints(sums), ints(offset)
    if kind == 3:
        z = ints(out)
        for i in range(count):
            z[i] = s[i] + o[i]
        return
    f, b = floats(factor), floats(shift)
    if kind == 0:
        y = floats(out)
        for i in range(count):
            t = _F(np.int32(s[i] + o[i])) * f[i] + b[i]
            t = low if t < low else t
            y[i] = high if t > high else t
        return
    u, v, plus = uint8s(out), int8s(out), _F(zero)
    if kind == 1:
        for i in range(count):
            t = np.rint(_F(np.int32(s[i] + o[i])) * f[i] + b[i]) + plus
            t = low if t < low else t
            t = high if t > high else t
            u[i] = np.uint8(np.int32(t))
    else:
        for i in range(count):
            t = np.rint(_F(np.int32(s[i] + o[i])) * f[i] + b[i]) + plus
            t = low if t < low else t
            t = high if t > high else t
            v[i] = np.int8(np.int32(t))


@entry("ppppppppppffu")
def convolve(x, out, weight, offset, factor, shift, tables, sums, zero, spec, low, high, unit, thread):
    """Any convolution in two dimensions; the spec is the float kernel's, then the kind of result and its zero point."""
    s = longs(spec)
    groups, depth, columns, taps, quads = s[4], s[5], s[6], s[7] * s[8], (s[5] + 3) // 4
    outstep, block, kind, plus = s[17], s[19], s[25], s[26]
    size = 1 if kind == 1 or kind == 2 else 4
    lines = (columns + BYTE_LANES - 1) // BYTE_LANES * BYTE_LANES
    table, accumulators = tables + thread * s[23], sums + thread * s[24]
    start, begin, end = part_of(unit, s, columns if groups == 1 else groups, block)
    rows = min(block, s[0] * s[15] * s[16] - start)
    addresses(1, x, zero, table, spec, start, rows)
    if groups > 1:
        advance(table, block, taps, rows, depth * begin)
    for g in range(begin if groups > 1 else 0, end if groups > 1 else 1):
        first, last = (0, columns) if groups > 1 else (begin, end)
        j = first
        while j < last:
            vectors = 2 if last - j > BYTE_LANES else 1
            wide = min(last - j, vectors * BYTE_LANES)
            panel = weight + 4 * taps * quads * (g * lines + j)
            at = g * columns + j
            for r in range(0, rows, BYTE_ROWS):
                tall = min(BYTE_ROWS, rows - r)
                byte_product(tall * 4 + vectors, taps, quads, table + 8 * r, block, panel, accumulators)
                for k in range(tall):
                    requantize(
                        kind, accumulators + 4 * k * BYTE_PANEL, out + size * ((start + r + k) * outstep + at), wide,
                        offset + 4 * at, factor + 4 * at, shift + 4 * at, plus, low, high,
                    )  # fmt: skip
            j += vectors * BYTE_LANES
        advance(table, block, taps, rows, depth)


@entry("ppppppppppffu")
def depthwise(x, out, weight, offset, factor, shift, tables, sums, zero, spec, low, high, unit, thread):
    """A depthwise convolution; weights are int32 (tap, channel)."""
    s = longs(spec)
    channels, taps, outstep, block, kind, plus = s[4], s[7] * s[8], s[17], s[19], s[25], s[26]
    size = 1 if kind == 1 or kind == 2 else 4
    table = tables + thread * s[23]
    t = longs(table)
    accumulators = sums + thread * s[24]
    start, begin, end = part_of(unit, s, channels, block)
    rows = min(block, s[0] * s[15] * s[16] - start)
    addresses(1, x, zero, table, spec, start, rows)
    for r in range(rows):
        for c in range(begin, end, 64):
            wide = min(64, end - c)
            total = ints(accumulators)
            for i in range(64):
                total[i] = 0
            for tap in range(taps):
                u, w = uint8s(t[tap * block + r] + c), ints(weight + 4 * (tap * channels + c))
                if wide == 64:
                    for i in range(64):
                        total[i] += np.int32(u[i]) * w[i]
                else:
                    for i in range(wide):
                        total[i] += np.int32(u[i]) * w[i]
            requantize(
                kind, accumulators, out + size * ((start + r) * outstep + c), wide,
                offset + 4 * c, factor + 4 * c, shift + 4 * c, plus, low, high,
            )  # fmt: skip


@entry("pppu")
def pad_channels_last(source, target, spec, unit, thread):
    """(sample, channel, row, column) of bytes to (sample, row, column, channel) with padding, a row at a time.

    The spec has the sizes, the strides, the padding above, below, left and right, its value, and 128 for
    signed bytes, which makes them unsigned.
    """
    s = longs(spec)
    channels, height, width = s[1], s[2], s[3]
    top, below, left, right = s[8], s[9], s[10], s[11]
    fill, flip = np.uint8(s[12]), np.uint8(s[13])
    high, wide = height + top + below, width + left + right
    n, row = unit // high, unit % high
    y = uint8s(target + unit * wide * channels)
    if row < top or row >= top + height:
        for i in range(wide * channels):
            y[i] = fill
        return
    for i in range(left * channels):
        y[i] = fill
    for i in range((left + width) * channels, wide * channels):
        y[i] = fill
    base = source + n * s[4] + (row - top) * s[6]
    y = uint8s(target + (unit * wide + left) * channels)
    if s[5] == 1 and s[7] == channels:
        x = uint8s(base)
        for i in range(width * channels):
            y[i] = x[i] ^ flip
    elif s[7] == 1:
        for c in range(channels):
            x = uint8s(base + c * s[5])
            for i in range(width):
                y[i * channels + c] = x[i] ^ flip
    else:
        x = uint8s(base)
        for i in range(width):
            for c in range(channels):
                y[i * channels + c] = x[i * s[7] + c * s[5]] ^ flip


@helper
def _number(pointer, i, negative):
    return _F(int8s(pointer)[i]) if negative != 0 else _F(uint8s(pointer)[i])


@entry("ppppfffffu")
def combined(left, right, out, spec, a, b, c, low, high, unit, thread):
    """round(a * x + b * y + c) + zero, clipped; the spec has the count, a piece's, the signs of the three, and the zero point."""
    s = longs(spec)
    begin = unit * s[1]
    count = min(s[1], s[0] - begin)
    plus = _F(s[5])
    x, y, z = left + begin, right + begin, out + begin
    u, v = uint8s(z), int8s(z)
    for i in range(count):
        t = np.rint(a * _number(x, i, s[2]) + b * _number(y, i, s[3]) + c) + plus
        t = low if t < low else t
        t = high if t > high else t
        if s[4] != 0:
            v[i] = np.int8(np.int32(t))
        else:
            u[i] = np.uint8(np.int32(t))


@entry("pppu")
def maximum(source, target, spec, unit, thread):
    """The largest byte of each window, one row of windows; padding never wins. spec[14] is 128 for signed bytes."""
    s = longs(spec)
    h, w, c, kh, kw, sh, sw = s[1], s[2], s[3], s[4], s[5], s[6], s[7]
    dh, dw, top, left, oh, ow = s[8], s[9], s[10], s[11], s[12], s[13]
    flip = np.uint8(s[14])
    b, oy = unit // oh, unit % oh
    for ox in range(ow):
        y = uint8s(target + ((b * oh + oy) * ow + ox) * c)
        for i in range(c):
            y[i] = np.uint8(0)
        for ky in range(kh):
            iy = oy * sh - top + ky * dh
            if iy < 0 or iy >= h:
                continue
            for kx in range(kw):
                ix = ox * sw - left + kx * dw
                if ix < 0 or ix >= w:
                    continue
                x = uint8s(source + ((b * h + iy) * w + ix) * c)
                for i in range(c):
                    u = x[i] ^ flip
                    y[i] = u if u > y[i] else y[i]
        for i in range(c):
            y[i] ^= flip
