"""Convolutions in float64, for the runs against which rounding is judged: weights are packed anew each time."""

from __future__ import annotations

import functools

import numpy as np

from onnxbridge.runtime.kernels.windows import Ints, Pads, out_sizes, pad
from onnxbridge.runtime.memory import empty
from onnxbridge.runtime.native import tile
from onnxbridge.runtime.native.address import Array, address, first
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.native.drive import threads
from onnxbridge.runtime.native.share import cut

BLOCK_BYTES = 448 << 10  # of input rows that are multiplied with all columns before the next ones
_UNFOLDED = 16  # input channels below which a row of the kernel is taken as one tap


@functools.cache
def load() -> None:
    """Make the tiles known to the loops that call them."""
    tile.make(tile.double(), "wide_")


def convolution(x: Array, w: Array, bias: Array | None, *, strides: Ints, pads: Pads, dilations: Ints, groups: int) -> Array:
    """Correlate float64 x (N, C, H, W) with w (M, C/groups, KH, KW); the result lies in memory with its channels last."""
    batch, channels = x.shape[:2]
    maps, depth, kh, kw = w.shape
    columns, each = maps // groups, depth == 1 and maps == groups and groups > 1
    oh, ow = out_sizes(x.shape[2:], (kh, kw), strides, pads, dilations)
    y = empty((batch, oh, ow, maps), np.float64)
    by_tap = w.reshape(groups, columns, depth, kh * kw).transpose(0, 3, 2, 1)
    x = x.transpose(0, 2, 3, 1)
    if groups == 1 and depth < _UNFOLDED and kw > 1 and dilations[1] == 1:
        x, pads = pad(x, [*pads, (0, 0)]), ((0, 0), (0, 0))
        by_tap, depth, kw = by_tap.reshape(1, kh, kw * depth, columns), kw * depth, 1
    rows = batch * oh * ow
    lanes, tall = tile.double().lanes, tile.PIXELS if each else tile.rows()
    most = max(tall, min(480, BLOCK_BYTES // (8 * max(1, depth) * (1 if kh == 1 else 2))))
    block = -(-max(1, rows) // (max(1, -(-rows // most)) * tall)) * tall
    across, panel = (maps, lanes) if each else (columns, tile.VECTORS * lanes) if groups == 1 else (groups, 1)
    block, split, share, units = cut(rows, across, panel, w.size * rows, block, tall)
    lines = 8 * (block + 16) * kh * kw
    spec = np.array(
        [*x.shape, maps if each else groups, depth, columns, kh, kw, *strides, *dilations,
         pads[0][0], pads[1][0], oh, ow, maps, maps, block, 0, split, share, lines],
        np.int64,
    )  # fmt: skip
    full = -(-columns // lanes) * lanes
    biases = np.zeros((1, -(-maps // lanes) * lanes) if each else (groups, full))
    if bias is not None:
        biases.reshape(-1, biases.shape[-1])[:, : maps if each else columns] = bias.reshape(len(biases), -1)
    if each:
        weights = np.zeros((kh * kw, biases.size))
        weights[:, :maps] = w.reshape(maps, -1).T
    else:
        weights = _packed(by_tap, full, tile.VECTORS * lanes)
    data = np.ascontiguousarray(x)
    tables, zeros = np.empty(lines * threads() // 8, np.int64), np.zeros(channels)
    loop("wide", "depthwise" if each else "convolve")(
        address(data), address(y), address(weights), address(biases), address(tables), address(zeros), address(spec), units=units
    )
    return first(y)


def _packed(w: Array, full: int, panel: int) -> Array:
    """Weights (groups, taps, depth, columns), the columns filled up to `full`, as panels (taps, depth, panel) in a row."""
    whole = np.zeros((*w.shape[:3], full))
    whole[..., : w.shape[3]] = w
    cuts = [(j, min(j + panel, full)) for j in range(0, full, panel)]
    parts = [whole[..., a:b].reshape(len(w), -1) for a, b in cuts]
    return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
