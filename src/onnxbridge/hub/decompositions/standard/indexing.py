"""Indexing in gathers, comparisons and one scatter."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import laid, places, product, scalar, sizes_of
from onnxbridge.hub.ir.values import cast, rank


def _distance(op, x):
    """For each element of the last two axes its column less its row."""
    rows, columns = (places(op, op.size(x, d)) for d in (-2, -1))
    return op.Sub(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))


@expand("Trilu")
def trilu(op, input, k=None, *, upper=1):
    k = np.int64(0) if k is None else op.Reshape(k, np.zeros(0, np.int64))
    kept = op.GreaterOrEqual(_distance(op, input), k) if upper else op.LessOrEqual(_distance(op, input), k)
    return op.And(kept, input) if input.dtype.name == "BOOL" else op.Where(kept, input, op.constant(0, dtype=input.dtype))


@expand("EyeLike")
def eye_like(op, input, *, dtype=None, k=0):
    return op.Cast(op.Equal(_distance(op, input), np.int64(k)), to=dtype or input.dtype)


@expand("OneHot")
def one_hot(op, indices, depth, values, *, axis=-1):
    """An index outside of the classes, counted from either end, has none."""
    axis %= rank(indices) + 1
    count = op.Reshape(cast(op, depth, ir.DataType.INT64), np.zeros(0, np.int64))
    place = cast(op, indices, ir.DataType.INT64)
    place = op.Where(op.Less(place, np.int64(0)), op.Add(place, count), place)
    classes = laid(op, places(op, count), axis, rank(indices) + 1)
    off, on = (op.Gather(values, np.int64(i), axis=0) for i in (0, 1))
    return op.Where(op.Equal(op.Unsqueeze(place, [axis]), classes), on, off)


@expand("Hardmax")
def hardmax(op, input, *, axis=-1):
    axis %= rank(input)
    best = op.ArgMax(input, axis=axis, keepdims=1)
    return op.Cast(op.Equal(laid(op, places(op, op.size(input, axis)), axis, rank(input)), best), to=input.dtype)


@expand("Compress")
def compress(op, input, condition, *, axis=None):
    data = op.Reshape(input, [-1]) if axis is None else input
    return op.Gather(data, op.Squeeze(op.NonZero(condition), [0]), axis=axis or 0)


def _tuples(op, indices, axis):
    """For each element its full index: what `indices` says on one axis, its own place on the others."""
    count, shape = rank(indices), op.Shape(indices)
    parts = []
    for d in range(count):
        own = laid(op, places(op, op.size(indices, d)), d, count)
        part = cast(op, indices, ir.DataType.INT64) if d == axis % count else op.Expand(own, shape)
        parts.append(op.Unsqueeze(part, [count]))
    return op.Concat(*parts, axis=count)


@expand("GatherElements")
def gather_elements(op, data, indices, *, axis=0):
    return op.GatherND(data, _tuples(op, indices, axis))


@expand("ScatterElements")
def scatter_elements(op, data, indices, updates, *, axis=0, reduction="none"):
    return op.ScatterND(data, _tuples(op, indices, axis), updates, reduction=reduction)


@expand("GatherND")
def gather_nd(op, data, indices, *, batch_dims=0):
    """As rows of the data flattened as far as an index reaches."""
    depth = indices.shape[-1] if indices.shape is not None else None
    if not isinstance(depth, int):
        raise Unsupported("index tuples of unknown length")
    sizes = sizes_of(op, data)
    ahead, inside, behind = sizes[:batch_dims], sizes[batch_dims : batch_dims + depth], sizes[batch_dims + depth :]
    place = None
    for d, size in enumerate(inside):
        each = op.Gather(indices, np.int64(d), axis=-1)
        each = op.Where(op.Less(each, np.int64(0)), op.Add(each, scalar(op, size)), each)
        place = each if place is None else op.Add(op.Mul(place, scalar(op, size)), each)
    if batch_dims:
        start = op.Mul(places(op, product(op, ahead)), scalar(op, product(op, inside)))
        place = op.Add(place, op.reshape(start, [*ahead, *[1] * (rank(indices) - 1 - batch_dims)]))
    flat = op.reshape(data, [product(op, [*ahead, *inside]), *behind])
    return op.Gather(flat, place, axis=0)


@expand("ReverseSequence")
def reverse_sequence(op, input, sequence_lens, *, batch_axis=1, time_axis=0):
    count = rank(input)
    steps = laid(op, places(op, op.size(input, time_axis)), time_axis, count)
    lengths = laid(op, cast(op, sequence_lens, ir.DataType.INT64), batch_axis, count)
    turned = op.Sub(op.Sub(lengths, np.int64(1)), steps)
    place = op.Where(op.Less(steps, lengths), turned, steps)
    return op.GatherElements(input, op.Expand(place, op.Shape(input)), axis=time_axis)


@expand("TensorScatter")
def tensor_scatter(op, past_cache, update, write_indices=None, *, axis=-2, mode="linear"):
    """Every place of the cache asks which element of the update was written to it, if any."""
    count = rank(past_cache)
    axis %= count
    size, length = (scalar(op, op.size(v, axis)) for v in (past_cache, update))
    first = op.constant(np.zeros(1, np.int64)) if write_indices is None else write_indices
    distance = op.Sub(laid(op, places(op, op.size(past_cache, axis)), axis, count), laid(op, first, 0, count))
    if mode == "circular":
        distance = op.Mod(distance, size)
    written = op.And(op.GreaterOrEqual(distance, np.int64(0)), op.Less(distance, length))
    element = op.Max(op.Min(distance, op.Sub(length, np.int64(1))), np.int64(0))
    full = op.dims([op.size(past_cache if d == axis else update, d) for d in range(count)])
    return op.Where(written, op.GatherElements(update, op.Expand(element, full), axis=axis), past_cache)
