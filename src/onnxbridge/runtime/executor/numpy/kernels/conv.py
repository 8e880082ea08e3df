"""Convolution and transposed convolution in any number of dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.executor.numpy.kernels.windows import Array, Ints, Pads, blocks, out_sizes, pad, shifts

BLOCK_BYTES = 2 << 20  # size of a block of unfolded input and results, so that it fits in the cache


def conv(x: Array, w: Array, bias: Array | None = None, *, strides: Ints, pads: Pads, dilations: Ints, groups: int = 1) -> Array:
    """Correlate x (N, C, *D) with w (M, C/groups, *K): (N, M, *out). `pads` holds (before, after) for each dimension."""
    out = out_sizes(x.shape[2:], w.shape[2:], strides, pads, dilations)
    batch, channels = x.shape[:2]
    maps, kernel = w.shape[0], w.shape[2:]
    x = pad(x, pads)
    if math.prod(kernel) == 1:
        met: Any = (..., *(slice(0, n * s, s) for n, s in zip(out, strides, strict=True)))
        cols = x[met].reshape(batch, groups, channels // groups, math.prod(out))
        y: Array = np.matmul(w.reshape(groups, maps // groups, -1), cols).reshape(batch, maps, *out)
    elif channels == groups > 1:
        y = _depthwise(x, w, out, strides, dilations)
    else:
        y = _unfolded(x, w, out, strides, dilations, groups)
    if bias is not None:
        y += bias.reshape(-1, *(1 for _ in out))
    return y


def _depthwise(x: Array, w: Array, out: Ints, strides: Ints, dilations: Ints) -> Array:
    """Each channel with its own kernels: a multiply-add for each kernel position, without unfolding, in blocks of channels."""
    batch, channels, kernel = x.shape[0], x.shape[1], w.shape[2:]
    many = w.shape[0] // channels
    per_channel = w.reshape(channels, many, *kernel)
    y: Array = np.zeros((batch, channels, many, *out), np.result_type(x, w))
    some = min(channels, max(1, BLOCK_BYTES // (4 * max(1, many * math.prod(out)) * y.itemsize)))
    term = np.empty((some, many, *out), y.dtype)
    parts = list(shifts(x, kernel, out, strides, dilations))
    for n, c in itertools.product(range(batch), range(0, channels, some)):
        here = slice(c, min(c + some, channels))
        part_of_y, part_of_term = y[n, here], term[: here.stop - c]
        for position, part in parts:
            at: Any = (here, slice(None), *position)
            factor = per_channel[at].reshape(here.stop - c, many, *(1 for _ in out))
            np.multiply(part[n, here, None], factor, out=part_of_term)
            part_of_y += part_of_term
    return y.reshape(batch, channels * many, *out)


def _unfolded(x: Array, w: Array, out: Ints, strides: Ints, dilations: Ints, groups: int) -> Array:
    """Unfold the input into columns, a block of output positions of one sample at a time, and multiply."""
    batch, channels = x.shape[:2]
    maps, kernel = w.shape[0], w.shape[2:]
    taps = math.prod(kernel)
    depth = channels // groups * taps
    weight = w.reshape(groups, maps // groups, depth)
    most = max(1, BLOCK_BYTES // max(1, (channels * taps + maps) * x.itemsize))
    parts = [part for _, part in shifts(x, kernel, out, strides, dilations)]
    y: Array = np.empty((batch, maps, *out), np.result_type(x, w))
    room = np.empty(channels * taps * min(most, math.prod(out)), x.dtype)
    for n, cut in itertools.product(range(batch), blocks(out, most)):
        sizes = [s.stop - s.start for s in cut]
        count, at = math.prod(sizes), (n, slice(None), *cut)
        cols = room[: channels * taps * count].reshape(channels, taps, *sizes)
        for k, part in enumerate(parts):
            cols[:, k] = part[at]
        y[at] = np.matmul(weight, cols.reshape(groups, depth, count)).reshape(maps, *sizes)
    return y


def conv_transpose(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    strides: Ints,
    pads: Pads,
    dilations: Ints,
    groups: int = 1,
    output_padding: Sequence[int] | None = None,
) -> Array:
    """The gradient of `conv` with respect to its input: x (N, C, *D), w (C, M/groups, *K) give (N, M, *out).

    `pads` is cut off the full result of (D - 1) * stride + span elements; a negative amount, and `output_padding`
    at the end, appends zeros (plus the bias).
    """
    batch, channels, sizes = x.shape[0], x.shape[1], x.shape[2:]
    maps, kernel = w.shape[1] * groups, w.shape[2:]
    weight = w.reshape(groups, channels // groups, -1).swapaxes(1, 2)
    cols = np.matmul(weight, x.reshape(batch, groups, channels // groups, math.prod(sizes)))
    cols = cols.reshape(batch, maps, math.prod(kernel), *sizes)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
    y: Array = np.zeros((batch, maps, *full), cols.dtype)
    for i, (_, part) in enumerate(shifts(y, kernel, sizes, strides, dilations)):
        part += cols[:, :, i]
    extra = output_padding or [0] * len(kernel)
    y = np.ascontiguousarray(pad(y, [(-b, e - a) for (b, a), e in zip(pads, extra, strict=True)]))
    if bias is not None:
        y += bias.reshape(-1, *(1 for _ in kernel))
    return y
