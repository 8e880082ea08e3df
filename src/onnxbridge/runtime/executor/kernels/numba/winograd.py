"""Convolutions of 3x3 kernels with stride 1 by Winograd's algorithm."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.kernels.compile.jit import entry, helper
from onnxbridge.runtime.executor.kernels.numba import activations
from onnxbridge.runtime.executor.kernels.numba.convolution import panels, part_of
from onnxbridge.runtime.executor.kernels.numba.memory import LANES, longs
from onnxbridge.runtime.executor.kernels.numba.tiles import gather, spread


@helper
def tile(at, down, along):
    """The sample, row and column of a tile by its number."""
    return at // along // down, at // along % down, at % along


@entry("pppppppppffffu")
def convolve(x, out, weight, bias, add, tables, zero, spec, scratch, low, high, a, b, unit, thread):
    """As the plain convolution; `scratch` holds the planes before and after the products, and a row that is discarded."""
    s = longs(spec)
    samples, height, width, step = s[0], s[1], s[2], s[3]
    depth, columns = s[5], s[6]
    top, left, oh, ow, outstep, addstep, block, kind = s[13], s[14], s[15], s[16], s[17], s[18], s[19], s[20]
    lines = (columns + LANES - 1) // LANES * LANES
    down, along = (oh + 1) // 2, (ow + 1) // 2
    start, begin, end = part_of(unit, s, columns, block)
    tiles, wide = min(block, samples * down * along - start), end - begin
    table = tables + thread * s[23]
    t = longs(table)
    before = scratch + thread * s[24]
    after = before + 4 * 16 * block * depth
    discarded = after + 4 * 16 * block * columns
    infinite = np.float32(np.inf)
    for r in range(tiles):
        n, ty, tx = tile(start + r, down, along)
        for k in range(16):
            iy, ix = 2 * ty - top + k // 4, 2 * tx - left + k % 4
            inside = 0 <= iy < height and 0 <= ix < width
            t[k] = x + 4 * ((n * height + iy) * width + ix) * step if inside else zero
        spread(table, before + 4 * r * depth, block * depth, depth)
    for k in range(16):
        for r in range(tiles):
            t[r] = before + 4 * (k * block + r) * depth
        panels(
            table, block, tiles, 1, depth, weight + 4 * (k * depth * lines + depth * begin), zero, 0, 0,
            after + 4 * k * block * wide, wide, wide, -infinite, infinite,
        )  # fmt: skip
    for r in range(tiles):
        n, ty, tx = tile(start + r, down, along)
        for k in range(4):
            oy, ox = 2 * ty + k // 2, 2 * tx + k % 2
            inside = oy < oh and ox < ow
            pixel = (n * oh + oy) * ow + ox
            t[k] = add + 4 * (pixel * addstep + begin) if add != 0 and inside else zero
            t[4 + k] = out + 4 * (pixel * outstep + begin) if inside else discarded
        gather(after + 4 * r * wide, block * wide, wide, bias + 4 * begin, table, table + 32, low, high)
        if kind != 0:
            for k in range(4):
                if t[4 + k] != discarded:
                    activations.run(kind, t[4 + k], wide, a, b)
