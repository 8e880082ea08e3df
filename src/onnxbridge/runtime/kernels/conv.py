"""Convolution and transposed convolution in any number of dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.runtime.kernels.windows import Array, Ints, Pads, out_sizes, pad, shifts, windows

COLUMN_BYTES = 64 << 20  # how much of the unfolded input may exist at a time


def conv(
    x: Array, w: Array, bias: Array | None = None, *, strides: Ints, pads: Pads, dilations: Ints, groups: int = 1
) -> Array:
    """Correlate x (N, C, *D) with w (M, C/groups, *K): (N, M, *out). `pads` holds (before, after) for each dimension."""
    batch, channels = x.shape[:2]
    maps, kernel = w.shape[0], w.shape[2:]
    out = out_sizes(x.shape[2:], kernel, strides, pads, dilations)
    x = pad(x, pads)
    if math.prod(kernel) == 1:
        met: Any = (..., *(slice(0, n * s, s) for n, s in zip(out, strides, strict=True)))
        cols = x[met].reshape(batch, groups, channels // groups, math.prod(out))
        y: Array = np.matmul(w.reshape(groups, maps // groups, -1), cols)
    elif channels == groups:
        y = _depthwise(x, w, out, strides, dilations)
    else:
        y = _unfolded(x, w, out, strides, dilations, groups)
    y = y.reshape(batch, maps, *out)
    if bias is not None:
        y += bias.reshape(-1, *(1 for _ in out))
    return y


def _depthwise(x: Array, w: Array, out: Ints, strides: Ints, dilations: Ints) -> Array:
    """Each channel with its own kernels: a multiply-add for each kernel position, without unfolding."""
    batch, channels, kernel = x.shape[0], x.shape[1], w.shape[2:]
    many = w.shape[0] // channels
    per_channel = w.reshape(channels, many, *kernel)
    y: Array = np.zeros((batch, channels, many, *out), np.result_type(x, w))
    term = np.empty_like(y)
    for position, part in shifts(x, kernel, out, strides, dilations):
        at: Any = (slice(None), slice(None), *position)
        factor = per_channel[at].reshape(channels, many, *(1 for _ in out))
        np.multiply(part[:, :, None], factor, out=term)
        y += term
    return y


def _unfolded(x: Array, w: Array, out: Ints, strides: Ints, dilations: Ints, groups: int) -> Array:
    """Unfold the input into columns, a slab of output rows of one sample at a time, and multiply."""
    batch, channels = x.shape[:2]
    maps, kernel = w.shape[0], w.shape[2:]
    depth = channels // groups * math.prod(kernel)
    weight = w.reshape(groups, maps // groups, depth)
    view = windows(x, kernel, out, strides, dilations)
    space = len(out)
    order = (0, *range(1 + space, 1 + 2 * space), *range(1, 1 + space))
    row = math.prod(out[1:])
    slab = max(1, COLUMN_BYTES // max(1, channels * math.prod(kernel) * row * x.itemsize))
    y: Array = np.empty((batch, groups, maps // groups, out[0], row), np.result_type(x, w))
    for n in range(batch):
        for top in range(0, out[0], slab):
            high = min(slab, out[0] - top)
            cols = view[n, :, top : top + high].transpose(order).reshape(groups, depth, high * row)
            y[n, :, :, top : top + high] = np.matmul(weight, cols).reshape(groups, maps // groups, high, row)
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
