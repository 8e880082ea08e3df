"""Indexing operators in Gather, comparisons and ScatterND."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, broadcast_along, product, scalar, sizes_of
from onnxbridge.hub.ir.values import cast, rank


def _column_minus_row(op, x):
    """column - row for each element of the last two axes."""
    rows, columns = (arange(op, op.size(x, d)) for d in (-2, -1))
    return op.Sub(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))


@decompose("Trilu")
def trilu(op, input, k=None, *, upper=1):
    k = np.int64(0) if k is None else op.Reshape(k, np.zeros(0, np.int64))
    mask = op.GreaterOrEqual(_column_minus_row(op, input), k) if upper else op.LessOrEqual(_column_minus_row(op, input), k)
    return op.And(mask, input) if input.dtype.name == "BOOL" else op.Where(mask, input, op.constant(0, dtype=input.dtype))


@decompose("EyeLike")
def eye_like(op, input, *, dtype=None, k=0):
    return op.Cast(op.Equal(_column_minus_row(op, input), np.int64(k)), to=dtype or input.dtype)


@decompose("OneHot")
def one_hot(op, indices, depth, values, *, axis=-1):
    """Indices outside of [-depth, depth) give `off` everywhere."""
    axis %= rank(indices) + 1
    count = op.Reshape(cast(op, depth, ir.DataType.INT64), np.zeros(0, np.int64))
    class_index = cast(op, indices, ir.DataType.INT64)
    class_index = op.Where(op.Less(class_index, np.int64(0)), op.Add(class_index, count), class_index)
    classes = broadcast_along(op, arange(op, count), axis, rank(indices) + 1)
    off, on = (op.Gather(values, np.int64(i), axis=0) for i in (0, 1))
    return op.Where(op.Equal(op.Unsqueeze(class_index, [axis]), classes), on, off)


@decompose("Hardmax")
def hardmax(op, input, *, axis=-1):
    axis %= rank(input)
    best = op.ArgMax(input, axis=axis, keepdims=1)
    return op.Cast(op.Equal(broadcast_along(op, arange(op, op.size(input, axis)), axis, rank(input)), best), to=input.dtype)


@decompose("Compress")
def compress(op, input, condition, *, axis=None):
    data = op.Reshape(input, [-1]) if axis is None else input
    return op.Gather(data, op.Squeeze(op.NonZero(condition), [0]), axis=axis or 0)


def _from_the_start(op, index, size):
    """Indices that may count from the end of an axis."""
    return op.Where(op.Less(index, np.int64(0)), op.Add(index, scalar(op, size)), index)


def _flat_index(op, data, indices, axis):
    """Where each element is among all elements of the data: `indices` along one axis, its own position along the others."""
    axis %= rank(indices)
    flat = np.int64(0)
    for d, size in enumerate(sizes_of(op, data)):
        if d == axis:
            position = _from_the_start(op, cast(op, indices, ir.DataType.INT64), size)
        else:
            position = broadcast_along(op, arange(op, op.size(indices, d)), d, rank(indices))
        flat = op.Add(op.Mul(flat, scalar(op, size)), position)
    return flat


@decompose("GatherElements")
def gather_elements(op, data, indices, *, axis=0):
    return op.Gather(op.reshape(data, [-1]), _flat_index(op, data, indices, axis), axis=0)


@decompose("ScatterElements")
def scatter_elements(op, data, indices, updates, *, axis=0, reduction="none"):
    flat = op.reshape(_flat_index(op, data, indices, axis), [-1, 1])
    scattered = op.ScatterND(op.reshape(data, [-1]), flat, op.reshape(updates, [-1]), reduction=reduction)
    return op.reshape(scattered, sizes_of(op, data))


@decompose("GatherND")
def gather_nd(op, data, indices, *, batch_dims=0):
    """Flattens the indexed axes of the data and gathers by flat index."""
    depth = indices.shape[-1] if indices.shape is not None else None
    if not isinstance(depth, int):
        raise Unsupported("GatherND with index tuples of dynamic length")
    sizes = sizes_of(op, data)
    end = batch_dims + depth
    batch_sizes, indexed_sizes, remaining_sizes = sizes[:batch_dims], sizes[batch_dims:end], sizes[end:]
    flat_index = None
    for d, size in enumerate(indexed_sizes):
        each = _from_the_start(op, op.Gather(indices, np.int64(d), axis=-1), size)
        flat_index = each if flat_index is None else op.Add(op.Mul(flat_index, scalar(op, size)), each)
    if batch_dims:
        start = op.Mul(arange(op, product(op, batch_sizes)), scalar(op, product(op, indexed_sizes)))
        flat_index = op.Add(flat_index, op.reshape(start, [*batch_sizes, *[1] * (rank(indices) - 1 - batch_dims)]))
    flat = op.reshape(data, [product(op, [*batch_sizes, *indexed_sizes]), *remaining_sizes])
    return op.Gather(flat, flat_index, axis=0)


@decompose("ReverseSequence")
def reverse_sequence(op, input, sequence_lens, *, batch_axis=1, time_axis=0):
    count = rank(input)
    steps = broadcast_along(op, arange(op, op.size(input, time_axis)), time_axis, count)
    lengths = broadcast_along(op, cast(op, sequence_lens, ir.DataType.INT64), batch_axis, count)
    reversed_steps = op.Sub(op.Sub(lengths, np.int64(1)), steps)
    source = op.Where(op.Less(steps, lengths), reversed_steps, steps)
    return op.GatherElements(input, op.Expand(source, op.Shape(input)), axis=time_axis)


@decompose("TensorScatter")
def tensor_scatter(op, past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """Computes for each position of the cache which element of the update, if any, is written to it."""
    count = rank(past_cache)
    axis %= count
    size, length = (scalar(op, op.size(v, axis)) for v in (past_cache, update))
    first = op.constant(np.zeros(1, np.int64)) if write_indices is None else write_indices
    distance = op.Sub(
        broadcast_along(op, arange(op, op.size(past_cache, axis)), axis, count), broadcast_along(op, first, 0, count)
    )
    if mode == "circular":
        distance = op.Mod(distance, size)
    written = op.And(op.GreaterOrEqual(distance, np.int64(0)), op.Less(distance, length))
    element = op.Max(op.Min(distance, op.Sub(length, np.int64(1))), np.int64(0))
    full = op.dims([op.size(past_cache if d == axis else update, d) for d in range(count)])
    return op.Where(written, op.GatherElements(update, op.Expand(element, full), axis=axis), past_cache)
