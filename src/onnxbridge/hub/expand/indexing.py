"""Writing into a cache in gathers and comparisons."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand


@expand("TensorScatter")
def tensor_scatter(op, past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """Every place of the cache asks which element of the update was written to it, if any."""
    rank = len(past_cache.shape)
    axis %= rank
    size, count = past_cache.shape[axis], update.shape[axis]
    if not all(isinstance(n, int) for n in (*past_cache.shape, count)):
        raise Unsupported("a dynamic size")
    first = op.constant(np.zeros(1, np.int64)) if write_indices is None else write_indices
    places = np.arange(size).reshape([-1 if d == axis else 1 for d in range(rank)])
    distance = op.Sub(places, op.Reshape(first, [-1 if d == 0 else 1 for d in range(rank)]))
    if mode == "circular":
        distance = op.Mod(distance, np.int64(size))
    written = op.And(op.GreaterOrEqual(distance, np.int64(0)), op.Less(distance, np.int64(count)))
    element = op.Max(op.Min(distance, np.int64(count - 1)), np.int64(0))
    full = [size if d == axis else n for d, n in enumerate(update.shape)]
    taken = op.GatherElements(update, op.Expand(element, full), axis=axis)
    return op.Where(written, taken, past_cache)
