"""Resize of pictures whose channels lie last."""

from __future__ import annotations

import numpy as np

from onnxbridge.runtime.executor.buffer_pool import Pool
from onnxbridge.runtime.executor.kernels.array_layout import Array, address, first, last
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.run.call_recorder import keep, numbers
from onnxbridge.runtime.executor.kernels.run.thread_pool import threads

Axis = tuple[Array, Array]
"""The elements of each output along an axis, int64 (taps, outputs), and their weights in float32; a single tap counts whole."""


def resized(x: Array, rows: Axis, columns: Axis, pool: Pool) -> Array:
    """(N, C, H, W) with each element mixed from those of `rows` and `columns`."""
    data = last(x, pool)
    n, h, w, c = data.shape
    high, wide = rows[0].shape[1], columns[0].shape[1]
    y = pool.empty((n, high, wide, c))
    held, room = pool.scratch(4 * w * c * threads())
    taps = (rows[0].shape[0], columns[0].shape[0])
    spec, where = numbers(h, w, c, high, wide, *taps, 4 * w * c)
    tables = [address(keep(np.ascontiguousarray(table))) for table in (*rows, *columns)]
    loop("resampling", "resized")(address(data), address(y), *tables, room, where, units=n * high)
    del held  # it had to live until here
    return first(y)
