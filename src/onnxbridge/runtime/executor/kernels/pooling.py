"""Pooling, LRN and per-channel factors on data with channels last."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, retain
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads
from onnxbridge.runtime.executor.kernels.run.work_partition import chunks
from onnxbridge.runtime.executor.numpy.padding import Window


def pooled(x: Array, w: Window, out: Sequence[int], largest: bool, include: bool, pool: Pool) -> Array:
    """The largest element or the mean of each window; whether padding counts in the mean."""
    n, c, height, width = x.shape
    data, y = last(x, pool), pool.empty((n, *out, c))
    (top, bottom), (left, right) = w.pads
    spec, where = int64_array(n, height, width, c, *w.kernel, *w.strides, *w.dilations, top, left, *out, bottom, right, include)
    run = load_kernel("pooling", "maximum" if largest else "mean")
    run(address(data), address(y), where, units=n * out[0])
    return first(y)


def means(x: Array, pool: Pool) -> Array:
    """The mean over all positions: (N, C, 1, ...)."""
    n, c, *sizes = x.shape
    data, y = last(x, pool), pool.empty((n, *(1 for _ in sizes), c))
    pixels = math.prod(sizes)
    chunk, units = chunks(c, pixels)
    buffer, scratch = pool.scratch(4 * chunk * threads())
    load_kernel("channels", "average")(address(data), address(y), scratch, pixels, c, chunk, units=n * units)
    del buffer  # keep the memory alive until here
    return first(y)


def lrn(x: Array, size: int, alpha: float, bias: float, pool: Pool) -> Array:
    """LRN with the exponent 3/4."""
    data = last(x, pool)
    channels = x.shape[1]
    y = pool.empty(data.shape)
    buffer, scratch = pool.scratch(4 * (channels + size + 15) * threads())
    before, pixels = (size - 1) // 2, data.size // channels
    chunk, units = chunks(pixels, 8 * channels)
    load_kernel("pooling", "lrn")(
        address(data), address(y), scratch, pixels, channels, chunk, before, size - 1 - before, bias, alpha / size, units=units
    )
    return first(y)


def affine(x: Array, scale: Array, shift: Array, low: float, high: float, pool: Pool) -> Array:
    """x * scale + shift for each channel, clipped to [low, high]."""
    data = last(x, pool)
    y = pool.empty(data.shape)
    pixels, channels = data.size // x.shape[1], x.shape[1]
    chunk, units = chunks(pixels, channels)
    load_kernel("pooling", "affine")(
        address(data), address(y), pixels, channels, chunk, address(retain(scale)), address(retain(shift)), low, high, units=units
    )
    return first(y)
