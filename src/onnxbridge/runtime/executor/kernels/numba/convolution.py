"""Products and convolutions over tiles. Activations are (batch, row, column, channel)."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper, shared
from onnxbridge.runtime.executor.kernels.numba import activations
from onnxbridge.runtime.executor.kernels.numba.memory import LANES, PANEL, PIXELS, ROWS, floats, longs
from onnxbridge.runtime.executor.kernels.numba.tiles import channelwise, product


@shared
def addresses(size, x, zero, table, spec, start, rows):
    """For each tap a line of the table: the addresses of the input elements that output positions from `start` on read.

    `zero` is the address for positions outside of the input. An element has `size` bytes.
    """
    s = longs(spec)
    height, width, step, kernel, columns, stride, across = s[1], s[2], s[3], s[7], s[8], s[9], s[10]
    dilate_rows, dilate_columns, top, left, high, wide, block = s[11], s[12], s[13], s[14], s[15], s[16], s[19]
    t = longs(table)
    ox = start % wide
    rest = start // wide
    oy = rest % high
    sample = rest // high
    r = 0
    while r < rows:  # positions of one output row at once
        count = min(wide - ox, rows - r)
        at = r
        for ky in range(kernel):
            iy = oy * stride - top + ky * dilate_rows
            line = x + size * ((sample * height + iy) * width) * step
            inside = 0 <= iy < height
            for kx in range(columns):
                begin = ox * across - left + kx * dilate_columns
                if inside:
                    for k in range(count):
                        ix = begin + k * across
                        t[at + k] = line + size * step * ix if 0 <= ix < width else zero
                else:
                    for k in range(count):
                        t[at + k] = zero
                at += block
        r += count
        ox = 0
        oy += 1
        if oy == high:
            oy = 0
            sample += 1


@shared
def panels(table, block, rows, taps, depth, weight, bias, add, addstep, out, outstep, columns, low, high):
    """All columns of a block of rows; the weights are in panels, the last one a vector wide if that is enough."""
    j = 0
    while j < columns:
        left = columns - j
        vectors = 2 if left > LANES else 1
        plus = add + 4 * j if add != 0 else 0
        for r in range(0, rows, ROWS):
            tall = min(ROWS, rows - r)
            product(
                tall * 4 + vectors, taps, depth, table + 8 * r, block, weight, bias + 4 * j,
                plus + 4 * r * addstep if add != 0 else 0, addstep, out + 4 * (j + r * outstep), outstep, left, low, high,
            )  # fmt: skip
        weight += 4 * taps * depth * vectors * LANES
        j += vectors * LANES


@helper
def finish(kind, out, rows, columns, step, a, b):
    """An activation of rows of results, in one call where they are contiguous."""
    if step == columns:
        activations.run(kind, out, rows * columns, a, b)
    else:
        for r in range(rows):
            activations.run(kind, out + 4 * r * step, columns, a, b)


@helper
def advance(table, block, taps, rows, size):
    """Add `size` bytes to the addresses of the rows in each line of a table."""
    t = longs(table)
    for tap in range(taps):
        for r in range(rows):
            t[tap * block + r] += size


@helper
def part_of(unit, s, columns, block):
    """A piece of the work: its first row, and its range of columns (or groups)."""
    split, wide = s[21], s[22]
    begin = unit % split * wide
    return unit // split * block, begin, min(columns, begin + wide)


@entry("ppppppppffffu")
def convolve(x, out, weight, bias, add, tables, zero, spec, low, high, a, b, unit, thread):
    """Any convolution in two dimensions, groups of many channels too; spec[21:24] describes its pieces (`part_of`)."""
    s = longs(spec)
    groups, depth, columns, taps = s[4], s[5], s[6], s[7] * s[8]
    outstep, addstep, block, kind = s[17], s[18], s[19], s[20]
    lines = (columns + LANES - 1) // LANES * LANES
    table = tables + thread * s[23]
    start, begin, end = part_of(unit, s, columns if groups == 1 else groups, block)
    rows = min(block, s[0] * s[15] * s[16] - start)
    addresses(4, x, zero, table, spec, start, rows)
    if groups == 1:
        to = start * outstep + begin
        panels(
            table, block, rows, taps, depth, weight + 4 * taps * depth * begin, bias + 4 * begin,
            add + 4 * (start * addstep + begin) if add != 0 else 0, addstep, out + 4 * to, outstep, end - begin, low, high,
        )  # fmt: skip
        if kind != 0:
            finish(kind, out + 4 * to, rows, end - begin, outstep, a, b)
        return
    advance(table, block, taps, rows, 4 * depth * begin)
    for g in range(begin, end):
        plus = add + 4 * (start * addstep + g * columns) if add != 0 else 0
        panels(
            table, block, rows, taps, depth, weight + 4 * g * taps * depth * lines, bias + 4 * g * lines,
            plus, addstep, out + 4 * (start * outstep + g * columns), outstep, columns, low, high,
        )  # fmt: skip
        advance(table, block, taps, rows, 4 * depth)
    if kind != 0:
        finish(kind, out + 4 * (start * outstep + begin * columns), rows, (end - begin) * columns, outstep, a, b)


@entry("ppppppppffffu")
def depthwise(x, out, weight, bias, add, tables, zero, spec, low, high, a, b, unit, thread):
    """A depthwise convolution; weights are (tap, channel), the channels padded to whole vectors."""
    s = longs(spec)
    channels, taps = s[4], s[7] * s[8]
    outstep, addstep, block, kind = s[17], s[18], s[19], s[20]
    lines = (channels + LANES - 1) // LANES * LANES
    table = tables + thread * s[23]
    start, begin, end = part_of(unit, s, channels, block)
    rows = min(block, s[0] * s[15] * s[16] - start)
    addresses(4, x, zero, table, spec, start, rows)
    for r in range(0, rows, PIXELS):
        tall = min(PIXELS, rows - r)
        at = start + r
        for c in range(begin, end, LANES):
            channelwise(
                tall, taps + (c << 32), lines, table + 8 * r, block, weight + 4 * c, bias + 4 * c,
                add + 4 * (at * addstep + c) if add != 0 else 0, addstep,
                out + 4 * (at * outstep + c), outstep, channels - c, low, high,
            )  # fmt: skip
    if kind != 0:
        finish(kind, out + 4 * (start * outstep + begin), rows, end - begin, outstep, a, b)


@entry("ppppppppffffu")
def multiply(x, out, weight, bias, zero, add, tables, spec, low, high, a, b, unit, thread):
    """A matrix product with packed weights. The depth is taken in slabs, so that rows and panels stay in the cache."""
    s = longs(spec)
    depth, slab, columns, block, kind = s[1], s[2], s[6], s[19], s[20]
    table = tables + thread * s[23]
    t = longs(table)
    infinite = np.float32(np.inf)
    lines = (columns + LANES - 1) // LANES * LANES
    start, begin, end = part_of(unit, s, columns, block)
    n, wide = min(block, s[0] - start), end - begin
    to = out + 4 * (start * columns + begin)
    for r in range(n):
        t[r] = x + 4 * (start + r) * depth
    plus = add + 4 * (start * columns + begin) if add != 0 else 0
    for k in range(0, depth, slab):
        deep = min(slab, depth - k)
        final = k + deep == depth
        panels(
            table, block, n, 1, deep, weight + 4 * (k * lines + deep * begin), (bias if k == 0 else zero) + 4 * begin,
            plus if k == 0 else to, columns, to, columns, wide, low if final else -infinite, high if final else infinite,
        )  # fmt: skip
        for r in range(n):
            t[r] += 4 * deep
    if kind != 0:
        finish(kind, to, n, wide, columns, a, b)


@entry("ppiiiiiii")
@shared
def pack(source, target, taps, depth, columns, tapstep, step, across, slab):
    """Pack weights (taps, depth, columns) with these strides into panels, padded with zeros.

    Slabs of the depth follow each other, each with all panels; there is only one where there are several taps. A panel's
    slabs are written in sequence nevertheless, since the weights of a column are mostly close together in memory.
    """
    y = floats(target)
    lines = (columns + LANES - 1) // LANES * LANES
    for j in range(0, columns, PANEL):
        left = columns - j
        wide = PANEL if left > LANES else LANES
        full = min(left, wide)
        for begin in range(0, depth, slab):
            deep = min(slab, depth - begin)
            at = begin * lines + j * taps * deep
            for tap in range(taps):
                x = floats(source + 4 * (tap * tapstep + begin * step + j * across))
                if across == 1:
                    for k in range(deep):
                        for c in range(full):
                            y[at + k * wide + c] = x[k * step + c]
                else:  # in pieces of a cache line along the depth
                    for k in range(0, deep, 16):
                        for c in range(full):
                            for i in range(k, min(k + 16, deep)):
                                y[at + i * wide + c] = x[i * step + c * across]
                for k in range(deep):
                    for c in range(full, wide):
                        y[at + k * wide + c] = 0.0
                at += deep * wide
