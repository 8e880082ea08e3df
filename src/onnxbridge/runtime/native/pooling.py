"""Pooling, LRN and per-channel factors on data with channels last."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxbridge.runtime.memory import Pool
from onnxbridge.runtime.native.address import Array, address, first, last
from onnxbridge.runtime.native.build import loop
from onnxbridge.runtime.numpy.padding import Window


def pooled(x: Array, w: Window, out: Sequence[int], largest: bool, include: bool, pool: Pool) -> Array:
    """The largest element or the mean of each window; whether padding counts in the mean."""
    n, c, height, width = x.shape
    data, y = last(x, pool), pool.empty((n, *out, c))
    (top, bottom), (left, right) = w.pads
    spec = np.array(
        [n, height, width, c, *w.kernel, *w.strides, *w.dilations, top, left, *out, bottom, right, include], np.int64
    )
    loop("pooling", "maximum" if largest else "mean", "iii")(address(data), address(y), address(spec))
    return first(y)


def means(x: Array, pool: Pool) -> Array:
    """The mean over all positions: (N, C, 1, 1)."""
    n, c, height, width = x.shape
    data, y = last(x, pool), pool.empty((n, 1, 1, c))
    spec = np.array([n, height, width, c, height, width, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0], np.int64)
    loop("pooling", "mean", "iii")(address(data), address(y), address(spec))
    return first(y)


def response(x: Array, size: int, alpha: float, bias: float, pool: Pool) -> Array:
    """LRN with the exponent 3/4."""
    data = last(x, pool)
    channels = x.shape[1]
    y, scratch = pool.empty(data.shape), pool.empty((channels + size,))
    before = (size - 1) // 2
    loop("pooling", "response", "iiiiiiiff")(
        address(data), address(y), address(scratch), data.size // channels, channels, before, size - 1 - before,
        bias, alpha / size,
    )  # fmt: skip
    return first(y)


def affine(x: Array, scale: Array, shift: Array, low: float, high: float, pool: Pool) -> Array:
    """x * scale + shift for each channel, clipped to [low, high]."""
    data = last(x, pool)
    y = pool.empty(data.shape)
    loop("pooling", "affine", "iiiiiiff")(
        address(data), address(y), data.size // x.shape[1], x.shape[1], address(scale), address(shift), low, high
    )
    return first(y)
