"""Gather, scatter and sorting."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.shape import squeeze
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, sliced, without_bool
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Array, Int


@rule("Gather")
def gather(sym, data, indices, *, axis=0):
    """Negative indices are wrapped."""
    axis %= rank(data)
    known = None if indices.array is None else np.asarray(indices.array)
    if known is not None and known.ndim == 0:
        index = int(known)
        row = sliced(sym, data, axis, index, index + 1 if index != -1 else None)
        return squeeze(sym, _shaped(row, tuple(1 if i == axis else d for i, d in enumerate(data.shape))), (axis,))
    if axis == 0 and _is_embedding(sym, data):
        rows, width = data.shape
        y = sym.Embedding(indices, data, input_dim=rows, output_dim=width, dtype=data.dtype)
        y.dtype = data.dtype
        return y
    y = without_bool(sym, lambda d: sym.take(d, indices, axis=axis, mode="wrap"), data)
    if indices.shape == () and not sym.np_shape:  # the index has a dimension then
        y = squeeze(sym, _shaped(y, (*data.shape[:axis], 1, *data.shape[axis + 1 :])), (axis,))
    return y


def _shaped(value, shape):
    value.shape = shape
    return value


def _is_embedding(sym, data):
    """Whether this is the weight of an embedding layer of the source, whose indices are never negative."""
    weight = data.constant
    return weight is not None and weight.trained and len(data.shape) == 2 and weight.name == f"{sym.module}.weight"


@rule("GatherND")
def gather_nd(sym, data, indices, *, batch_dims=0):
    if batch_dims:
        outer = fixed(indices, range(batch_dims))
        coordinates = np.indices(outer, np.int64).reshape(batch_dims, *outer)
        wide, full = (*outer, *[1] * (rank(indices) - batch_dims)), (*fixed(indices)[:-1], 1)
        grids = [sym.constant(np.ascontiguousarray(np.broadcast_to(p.reshape(wide), full))) for p in coordinates]
        joined = sym.Concat(*grids, cast(sym, indices, np.int64), dim=rank(indices) - 1)
        return without_bool(sym, lambda d: sym.gather_nd(d, sym.transpose(joined, axes=_last_first(len(full)))), data)
    return without_bool(sym, lambda d: sym.gather_nd(d, permuted(sym, indices, _last_first(rank(indices)))), data)


def _last_first(count):
    return (count - 1, *range(count - 1))


def _coordinates(sym, indices, axis, size):
    """The coordinates of each element of `indices`, with the index as the coordinate along `axis`: [rank, ...]."""
    sizes = fixed(indices)
    along = sym._npi_where(sym._npi_less_scalar(indices, scalar=0), sym._plus_scalar(indices, scalar=size), indices)
    along.dtype = indices.dtype
    along = cast(sym, along, np.int64)
    own = np.indices(sizes)[:, None].astype(np.int64)
    rows = [sym.expand_dims(along, axis=0) if i == axis else sym.constant(own[i]) for i in range(len(sizes))]
    return sym.Concat(*rows, dim=0) if len(rows) > 1 else rows[0]


@rule("GatherElements")
def gather_elements(sym, data, indices, *, axis=0):
    axis %= rank(data)
    coordinates = _coordinates(sym, indices, axis, fixed(data, [axis])[0])
    return without_bool(sym, lambda d: sym.gather_nd(d, coordinates), data)


def _scattered(sym, data, updates, coordinates, reduction):
    """The data with updates at their coordinates."""
    if data.dtype == BOOL or reduction not in ("none", "add"):
        raise Unsupported(f"reduction={reduction!r} of {data.dtype}")
    shape = fixed(data)
    if reduction == "add":
        return sym._npi_add(data, sym._backward_gather_nd(updates, coordinates, shape=shape))
    ones = sym.ones_like(updates)
    has_update = sym.scatter_nd(ones, coordinates, shape=shape)
    return sym._npi_where(has_update, sym.scatter_nd(updates, coordinates, shape=shape), data)


@rule("ScatterElements")
def scatter_elements(sym, data, indices, updates, *, axis=0, reduction="none"):
    axis %= rank(data)
    return _scattered(sym, data, updates, _coordinates(sym, indices, axis, fixed(data, [axis])[0]), reduction)


@rule("ScatterND")
def scatter_nd(sym, data, indices, updates, *, reduction="none"):
    sizes = np.array(fixed(data)[: fixed(indices, [-1])[0]], indices.dtype)
    inside = sym._npi_mod(indices, sizes)
    return _scattered(sym, data, updates, sym.transpose(inside, axes=_last_first(rank(indices))), reduction)


@rule("OneHot")
def one_hot(sym, indices, depth: Int, values: Array, *, axis=-1):
    """Negative indices are wrapped; out-of-range ones give no hot element."""
    off, on = values.reshape(-1)
    axis %= rank(indices) + 1
    wide = sym.expand_dims(cast(sym, indices, np.int64), axis=axis)
    wide.dtype = np.dtype(np.int64)
    wide = sym._npi_where(sym._npi_less_scalar(wide, scalar=0), sym._plus_scalar(wide, scalar=depth), wide)
    wide.dtype = np.dtype(np.int64)
    coordinates = np.arange(depth, dtype=np.int64).reshape([-1] + [1] * (rank(indices) - axis))
    return sym._npi_where(sym._npi_equal(wide, coordinates), sym.constant(np.asarray(on)), sym.constant(np.asarray(off)))


@rule("TopK")
def topk(sym, X, K: Int, *, axis=-1, largest=1, sorted=1):
    if K == 0:
        raise Unsupported("K=0, which means all elements in MXNet")
    return sym.topk(X, axis=axis, k=K, ret_typ="both", is_ascend=not largest, dtype="int64", outputs=2)


@rule("CumSum")
def cumsum(sym, x, axis: Int, *, exclusive=0, reverse=0):
    axis %= rank(x)
    flipped = sym.reverse(x, axis=(axis,)) if reverse else x
    total = sym.cumsum(flipped, axis=axis)
    total = sym._npi_subtract(total, flipped) if exclusive else total
    return sym.reverse(total, axis=(axis,)) if reverse else total


@rule("Trilu")
def trilu(sym, input, k: Int | None = None, *, upper=1):
    if not upper:
        return without_bool(sym, lambda v: sym._npi_tril(v, k=k or 0), input)
    rows, columns = fixed(input, [-2, -1])
    mask = ~np.tri(rows, columns, (k or 0) - 1, dtype=bool)
    return without_bool(sym, lambda v: sym._npi_where(sym.constant(mask), v, sym.zeros_like(v)), input)


@rule("ReverseSequence")
def reverse_sequence(sym, input, sequence_lens, *, batch_axis=1, time_axis=0):
    order = [0, 1, *range(2, rank(input))] if time_axis == 0 else [1, 0, *range(2, rank(input))]
    x = input if time_axis == 0 else sym.transpose(input, axes=order)
    y = sym.SequenceReverse(x, cast(sym, sequence_lens, input.dtype), use_sequence_length=True)
    return y if time_axis == 0 else sym.transpose(y, axes=order)


@rule("Range")
def range_(sym, start: Array, limit: Array, delta: Array):
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)
