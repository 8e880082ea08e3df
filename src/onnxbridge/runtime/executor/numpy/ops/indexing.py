"""Gathering, scattering, slicing and picking elements."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Int, Ints
from onnxbridge.runtime.executor.numpy.dtypes import NARROW, wide
from onnxbridge.runtime.executor.numpy.ops import rule


@rule("Slice", kind="view")
def slice_(data, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None):
    cut = [slice(None)] * data.ndim
    axes = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, axes, steps or (1,) * len(starts), strict=True):
        n = data.shape[axis]
        start = start + n if start < 0 else start
        end = end + n if end < 0 else end
        if step > 0:
            cut[axis] = slice(min(max(start, 0), n), min(max(end, 0), n), step)
        else:
            end = min(max(end, -1), n - 1)
            # Going down, an end before the first element can only be written as None.
            cut[axis] = slice(min(max(start, 0), n - 1), None if end < 0 else end, step) if n else slice(0, 0)
    return data[tuple(cut)]


def _wrapped(indices, size):
    """Negative indices counted from the end.

    Raises:
        IndexError: if one is outside; scattering and gathering would wrap or clamp it otherwise.
    """
    if indices.size == 1:  # as in loops over rows
        at = int(indices.item())
        if not -size <= at < size:
            raise IndexError(f"an index is outside of [{-size}, {size - 1}]")
        return np.full(indices.shape, at + size if at < 0 else at)
    indices = indices.astype(np.int64)
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise IndexError(f"an index is outside of [{-size}, {size - 1}]")
    return np.where(indices < 0, indices + size, indices)


@rule("Gather", kind="view")
def gather(data, indices, *, axis=0):
    axis %= data.ndim
    claim((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), data.dtype)
    # Not np.take, which first copies data that is not aligned, as weights in a file are.
    return data[(slice(None),) * axis + (_wrapped(indices, data.shape[axis]),)]


def _along(indices, axis, size):
    """Index arrays that pick `indices` along an axis and every other coordinate as it is."""
    grid = list(np.ogrid[tuple(map(slice, indices.shape))])
    grid[axis] = _wrapped(indices, size)
    return tuple(grid)


@rule("GatherElements")
def gather_elements(data, indices, *, axis=0):
    axis %= data.ndim
    return data[_along(indices, axis, data.shape[axis])]


@rule("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    depth = indices.shape[-1]
    claim((*indices.shape[:-1], *data.shape[batch_dims + depth :]), data.dtype)
    batches = np.ogrid[tuple(map(slice, indices.shape[:batch_dims]))] if batch_dims else []
    lead = [b.reshape(b.shape + (1,) * (indices.ndim - 1 - batch_dims)) for b in batches]
    parts = [_wrapped(indices[..., i], data.shape[batch_dims + i]) for i in range(depth)]
    return data[(*lead, *parts)]


_AT = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(data, where, updates, reduction):
    if reduction == "none":
        out = data.copy()
        out[where] = updates
        return out
    out = wide(data).copy()  # sums of half precision numbers are rounded once
    if data.dtype.kind == "O":
        raise Unsupported(f"reduction {reduction!r} of strings")
    _AT[reduction].at(out, where, wide(updates))
    return out.astype(data.dtype) if data.dtype in NARROW else out


@rule("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    axis %= data.ndim
    return _scatter(data, _along(indices, axis, data.shape[axis]), updates, reduction)


@rule("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    where = tuple(_wrapped(indices[..., i], data.shape[i]) for i in range(indices.shape[-1])) or (...,)
    return _scatter(data, where, updates, reduction)


@rule("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis %= past_cache.ndim
    out = np.moveaxis(past_cache.copy(), axis, 1)
    new = np.moveaxis(update, axis, 1)
    batch, size, count = out.shape[0], out.shape[1], new.shape[1]
    first = np.zeros(batch, np.int64) if write_indices is None else write_indices.astype(np.int64)
    rows = first[:, None] + np.arange(count)
    if mode == "circular":
        rows %= size
    elif rows.size and (rows.min() < 0 or rows.max() >= size):
        raise IndexError(f"writing {count} elements does not fit into a cache of {size}")
    out[np.arange(batch)[:, None], rows] = new
    return np.moveaxis(out, 1, axis)


@rule("NonZero")
def non_zero(X):
    return np.array(np.nonzero(X), np.int64).reshape(X.ndim, -1) if X.ndim else np.zeros((0, int(bool(X))), np.int64)


@rule("OneHot")
def one_hot(indices, depth: Int, values, *, axis=-1):
    at = axis % (indices.ndim + 1)
    claim((*indices.shape[:at], depth, *indices.shape[at:]), values.dtype)
    hot = indices.astype(np.int64)
    hot = np.where(hot < 0, hot + depth, hot)
    classes = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - at))
    off, on = values
    return np.where(np.expand_dims(hot, at) == classes, on, off).astype(values.dtype)


@rule("Compress")
def compress(input, condition, *, axis=None):
    x = input.reshape(-1) if axis is None else input
    return np.compress(condition, x, axis=axis or 0)


@rule("Unique")
def unique(X, *, axis=None, sorted=1):
    if X.dtype == object and axis is not None:  # NumPy orders rows of numbers only
        strings, codes = np.unique(X, return_inverse=True)
        values, *indices_and_counts = unique(codes.reshape(X.shape), axis=axis, sorted=sorted)
        return strings[values], *indices_and_counts
    values, first, inverse, counts = np.unique(X, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = values[order] if axis is None else np.take(values, order, axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@rule("ai.onnx.ml::ArrayFeatureExtractor")
def array_feature_extractor(X, Y):
    picked = np.take(X, Y.reshape(-1), axis=-1)
    return picked.reshape(1, -1) if X.ndim == 1 else picked


@rule("ai.onnx.ml::OneHotEncoder")
def one_hot_encoder(X, *, cats_int64s=None, cats_strings=None, zeros=1):
    categories = np.array(cats_strings, object) if cats_strings else np.array(cats_int64s, np.int64)
    claim((*X.shape, len(categories)), np.float32)
    hot = (X if cats_strings else X.astype(np.int64))[..., None] == categories
    if not zeros and not hot.any(-1).all():
        raise ValueError("an element is in none of the categories")
    return hot.astype(np.float32)
