"""Convolutions in float64, laid out (batch, row, column, channel): what judges the others does nothing but add up."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.native.jit import entry, external, helper
from onnxbridge.runtime.native.loops.convolution import addresses, part_of
from onnxbridge.runtime.native.loops.data import PIXELS, ROWS, WIDE_LANES, longs
from onnxbridge.runtime.native.loops.tiles import plain_wide_channelwise, plain_wide_product
from onnxbridge.runtime.native.wide import load

load()
wide_product = external("onnxbridge_wide_product", "iiiiiiiiiiiiff", plain_wide_product)
wide_channelwise = external("onnxbridge_wide_channelwise", "iiiiiiiiiiiiff", plain_wide_channelwise)


@helper
def panels(table, block, rows, taps, depth, weight, bias, out, outstep, columns):
    """All columns of a block of rows; the weights lie in panels, the last one a vector wide if that is enough."""
    most = np.float32(np.inf)
    j = 0
    while j < columns:
        left = columns - j
        vectors = 2 if left > WIDE_LANES else 1
        for r in range(0, rows, ROWS):
            tall = min(ROWS, rows - r)
            wide_product(
                tall * 4 + vectors, taps, depth, table + 8 * r, block, weight, bias + 8 * j,
                0, 0, out + 8 * (j + r * outstep), outstep, left, -most, most,
            )  # fmt: skip
        weight += 8 * taps * depth * vectors * WIDE_LANES
        j += vectors * WIDE_LANES


@entry("pppppppu")
def convolve(x, out, weight, bias, tables, zero, spec, start_unit, end_unit, part):
    """Any convolution in two dimensions, in groups too; `spec` is that of the loop for float32."""
    for unit in range(start_unit, end_unit):
        s = longs(spec)
        samples, height, width, step = s[0], s[1], s[2], s[3]
        groups, depth, columns = s[4], s[5], s[6]
        kernel, across = s[7], s[8]
        oh, ow, outstep, block = s[15], s[16], s[17], s[19]
        taps = kernel * across
        lines = (columns + WIDE_LANES - 1) // WIDE_LANES * WIDE_LANES
        table = tables + part * s[23]
        t = longs(table)
        start, begin, end = part_of(unit, s, columns if groups == 1 else groups, block)
        rows = min(block, samples * oh * ow - start)
        addresses(
            8, x, zero, table, block, start, rows, step, height, width,
            kernel, across, s[9], s[10], s[11], s[12], s[13], s[14], oh, ow,
        )  # fmt: skip
        if groups == 1:
            panels(
                table, block, rows, taps, depth, weight + 8 * taps * depth * begin, bias + 8 * begin,
                out + 8 * (start * outstep + begin), outstep, end - begin,
            )  # fmt: skip
            continue
        for tap in range(taps):
            for r in range(rows):
                t[tap * block + r] += 8 * depth * begin
        for g in range(begin, end):
            panels(
                table, block, rows, taps, depth, weight + 8 * g * taps * depth * lines, bias + 8 * g * lines,
                out + 8 * (start * outstep + g * columns), outstep, columns,
            )  # fmt: skip
            for tap in range(taps):
                for r in range(rows):
                    t[tap * block + r] += 8 * depth


@entry("pppppppu")
def depthwise(x, out, weight, bias, tables, zero, spec, start_unit, end_unit, part):
    """A convolution of each channel by itself; weights are (tap, channel), the channels filled up to whole vectors."""
    for unit in range(start_unit, end_unit):
        most = np.float32(np.inf)
        s = longs(spec)
        samples, height, width, step, channels = s[0], s[1], s[2], s[3], s[4]
        kernel, across = s[7], s[8]
        oh, ow, outstep, block = s[15], s[16], s[17], s[19]
        taps = kernel * across
        lines = (channels + WIDE_LANES - 1) // WIDE_LANES * WIDE_LANES
        table = tables + part * s[23]
        start, begin, end = part_of(unit, s, channels, block)
        rows = min(block, samples * oh * ow - start)
        addresses(
            8, x, zero, table, block, start, rows, step, height, width,
            kernel, across, s[9], s[10], s[11], s[12], s[13], s[14], oh, ow,
        )  # fmt: skip
        for r in range(0, rows, PIXELS):
            tall = min(PIXELS, rows - r)
            for c in range(begin, end, WIDE_LANES):
                wide_channelwise(
                    tall, taps + (c << 32), lines, table + 8 * r, block, weight + 8 * c, bias + 8 * c,
                    0, 0, out + 8 * ((start + r) * outstep + c), outstep, channels - c, -most, most,
                )  # fmt: skip
