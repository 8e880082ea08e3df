"""Gather, scatter and search."""

from __future__ import annotations

import math

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import axis_of, known, packed, rank, size
from onnxbridge.errors import Unsupported


def wrapped(indices, n):
    """Indices as int64, with negative ones wrapped."""
    fixed = known(indices)
    indices = tf.cast(indices, tf.int64)
    if isinstance(fixed, tuple) and all(i >= 0 for i in fixed):
        return indices
    return tf.where(indices < 0, indices + tf.cast(n, tf.int64), indices)


@rule("Gather")
def gather(data, indices, *, axis=0):
    return tf.gather(data, wrapped(indices, size(data, axis)), axis=axis)


def axis_coordinates(data, indices, axis):
    """The full coordinates of each element of `indices` along one axis."""
    axis = axis_of(data, axis)
    shape = tf.shape(indices, tf.int64)
    each = []
    for d in range(rank(data)):
        if d == axis:
            each.append(wrapped(indices, size(data, axis)))
        else:
            steps = tf.reshape(tf.range(shape[d]), [-1 if i == d else 1 for i in range(rank(data))])
            each.append(tf.broadcast_to(steps, shape))
    return tf.stack(each, -1)


@rule("GatherElements")
def gather_elements(data, indices, *, axis=0):
    return tf.gather_nd(data, axis_coordinates(data, indices, axis))


def _wrapped_coordinates(data, indices, batch_dims=0):
    """Coordinates with negative ones wrapped."""
    depth = size(indices, -1)
    return wrapped(indices, tf.shape(data, tf.int64)[batch_dims : batch_dims + depth])


@rule("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    return tf.gather_nd(data, _wrapped_coordinates(data, indices, batch_dims), batch_dims=batch_dims)


def _scattered(data, coordinates, updates, reduction):
    if data.dtype == tf.bool and reduction != "none":
        return tf.cast(_scattered(tf.cast(data, tf.int32), coordinates, tf.cast(updates, tf.int32), reduction), tf.bool)
    if reduction == "mul":
        shape = tf.shape(data, tf.int64)
        depth = size(coordinates, -1)
        strides = tf.math.cumprod(shape[:depth], exclusive=True, reverse=True)
        rows = tf.reduce_sum(coordinates * strides, -1)
        flat = tf.reshape(data, tf.stack([tf.reduce_prod(shape[:depth]), tf.reduce_prod(shape[depth:])]))
        changes = tf.reshape(updates, tf.stack([tf.size(rows, tf.int64), tf.reduce_prod(shape[depth:])]))
        factors = tf.math.unsorted_segment_prod(changes, tf.reshape(rows, [-1]), tf.reduce_prod(shape[:depth]))
        return tf.reshape(flat * factors, shape)
    function = {
        "none": tf.tensor_scatter_nd_update, "add": tf.tensor_scatter_nd_add, "max": tf.tensor_scatter_nd_max,
        "min": tf.tensor_scatter_nd_min,
    }[reduction]  # fmt: skip
    result = function(data, coordinates, updates)
    if reduction not in ("max", "min") or not data.dtype.is_floating:
        return result
    # TensorFlow's comparisons ignore NaN
    nan_updates = tf.tensor_scatter_nd_add(tf.zeros_like(data), coordinates, tf.cast(tf.math.is_nan(updates), data.dtype))
    return tf.where((nan_updates > 0) | tf.math.is_nan(data), tf.cast(math.nan, data.dtype), result)


@rule("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    return _scattered(data, axis_coordinates(data, indices, axis), updates, reduction)


@rule("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    return _scattered(data, _wrapped_coordinates(data, indices), updates, reduction)


@rule("TensorScatter")
def tensor_scatter(past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    axis = axis_of(past_cache, axis)
    shape = tf.shape(update, tf.int64)
    positions = tf.range(shape[axis])
    if write_indices is not None:
        positions = tf.cast(write_indices, tf.int64)[:, None] + positions
    if mode == "circular":
        positions = positions % tf.shape(past_cache, tf.int64)[axis]
    lead = [-1 if write_indices is not None else 1] + [1] * (axis - 1)
    positions = tf.reshape(positions, packed([*lead, size(update, axis)] + [1] * (rank(past_cache) - axis - 1)))
    return scatter_elements(past_cache, tf.broadcast_to(positions, shape), update, axis=axis)


@rule("NonZero")
def non_zero(X):
    if rank(X) == 0:
        raise Unsupported("NonZero of a scalar")
    return tf.transpose(tf.where(X if X.dtype == tf.bool else tf.zeros([], X.dtype) != X))


@rule("Compress")
def compress(input, condition, *, axis=None):
    data = tf.reshape(input, [-1]) if axis is None else input
    return tf.gather(data, tf.reshape(tf.where(condition), [-1]), axis=axis or 0)


@rule("Unique")
def unique(X, *, axis=None, sorted=1):
    data = tf.reshape(X, [-1]) if axis is None else X
    axis = axis or 0
    values, inverse, counts = tf.raw_ops.UniqueWithCountsV2(x=data, axis=[axis], out_idx=tf.int64)
    total = tf.size(inverse, tf.int64)
    first = tf.math.unsorted_segment_min(tf.range(total), inverse, tf.size(counts, tf.int64))
    if sorted:
        if rank(data) == 1 and data.dtype != tf.string:
            order = tf.argsort(values, stable=True)
        elif data.dtype == tf.string:
            raise Unsupported("Unique of strings, sorted")
        else:
            order = _lexicographic(values, axis)
        values, first, counts = (tf.gather(v, order, axis=a) for v, a in ((values, axis), (first, 0), (counts, 0)))
        inverse = tf.gather(tf.cast(tf.argsort(order), tf.int64), inverse)
    return values, first, inverse, counts


def _lexicographic(values, axis):
    """The lexicographic order of slices."""
    axis = axis_of(values, axis)
    rows = tf.transpose(values, [axis, *(d for d in range(rank(values)) if d != axis)])
    rows = tf.reshape(rows, tf.stack([tf.shape(rows)[0], -1]))

    def by_column(i, order):
        column = tf.gather(rows[:, tf.shape(rows)[1] - 1 - i], order)
        return i + 1, tf.gather(order, tf.argsort(column, stable=True))

    start = (tf.constant(0), tf.range(tf.shape(rows)[0]))
    return tf.while_loop(lambda i, _: i < tf.shape(rows)[1], by_column, start)[1]


@rule("TopK")
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    count = tf.cast(tf.reshape(K, []), tf.int32)
    axis = axis_of(X, axis)
    order = [d for d in range(rank(X)) if d != axis] + [axis]
    rows = tf.transpose(X, order)
    if largest:
        values, indices = tf.math.top_k(rows, count)
    else:
        indices = tf.argsort(rows, stable=True)[..., :count]
        values = tf.gather(rows, indices, batch_dims=rank(X) - 1)
    inverse = [order.index(d) for d in range(rank(X))]
    return tf.transpose(values, inverse), tf.cast(tf.transpose(indices, inverse), tf.int64)


@rule("OneHot")
def one_hot(indices, depth, values, *, axis=-1):
    depth = tf.cast(tf.reshape(depth, []), tf.int64)
    positions = tf.cast(indices, tf.int64)
    positions = tf.where(positions < 0, positions + depth, positions)
    axis = axis if axis >= 0 else axis + rank(indices) + 1
    steps = tf.reshape(tf.range(depth), [-1] + [1] * (rank(indices) - axis))
    return tf.where(tf.expand_dims(positions, axis) == steps, values[1], values[0])
