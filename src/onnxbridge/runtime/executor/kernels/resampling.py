"""Resize of images in channels-last layout."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_recorder import int64_array, retain
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads

Axis = tuple[Array, Array]
"""The elements of each output along an axis, int64 (taps, outputs), and their weights in float32; a single tap counts whole."""


def resized(x: Array, rows: Axis, columns: Axis, pool: Pool) -> Array:
    """(N, C, H, W) with each element mixed from those of `rows` and `columns`."""
    data = last(x, pool)
    n, h, w, c = data.shape
    high, wide = rows[0].shape[1], columns[0].shape[1]
    y = pool.empty((n, high, wide, c))
    buffer, scratch = pool.scratch(4 * w * c * threads())
    taps = (rows[0].shape[0], columns[0].shape[0])
    spec, where = int64_array(h, w, c, high, wide, *taps, 4 * w * c)
    tables = [address(retain(np.ascontiguousarray(table))) for table in (*rows, *columns)]
    load_kernel("resampling", "resize")(address(data), address(y), *tables, scratch, where, units=n * high)
    del buffer  # keep the memory alive until here
    return first(y)
