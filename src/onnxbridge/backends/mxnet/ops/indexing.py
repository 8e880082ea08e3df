"""Gather, scatter and sorting."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.backends.mxnet.ops import computed_sizes as computed
from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.computed_slices import taken
from onnxbridge.backends.mxnet.ops.control import foreach
from onnxbridge.backends.mxnet.ops.dynamic_sizes import declared, positions, result_sizes
from onnxbridge.backends.mxnet.ops.shape import squeeze
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, reshaped, sliced, typed, without_bool
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
        return squeeze(sym, typed(row, data.dtype, tuple(1 if i == axis else d for i, d in enumerate(data.shape))), (axis,))
    if axis == 0 and _is_embedding(sym, data):
        rows, width = data.shape
        y = sym.Embedding(indices, data, input_dim=rows, output_dim=width, dtype=data.dtype)
        y.dtype = data.dtype
        return y
    y = without_bool(sym, lambda d: sym.take(d, indices, axis=axis, mode="wrap"), data)
    if indices.shape == () and not sym.np_shape:  # the index has a dimension then
        y = squeeze(sym, typed(y, data.dtype, (*data.shape[:axis], 1, *data.shape[axis + 1 :])), (axis,))
    return y


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
    if rank(indices) == 1:  # MXNet's operator gathers a list
        count, size = fixed(indices)[0], rank(data)
        one = typed(sym.Reshape(indices, shape=(count, 1)), indices.dtype)
        return without_bool(sym, lambda d: reshaped(sym, sym.gather_nd(d, one), fixed(data, range(count, size))), data)
    return without_bool(sym, lambda d: sym.gather_nd(d, permuted(sym, indices, _last_first(rank(indices)))), data)


def _last_first(count):
    return (count - 1, *range(count - 1))


def _coordinates(sym, indices, axis, size):
    """The coordinates of each element of `indices`, with the index as the coordinate along `axis`: [rank, ...]."""
    sizes = fixed(indices)
    wide = cast(sym, indices, np.int64)
    negative = typed(sym._npi_less_scalar(wide, scalar=0, is_int=True), BOOL)
    along = typed(sym._npi_add(wide, sym._npi_multiply(cast(sym, negative, np.int64), np.array([size]))), np.int64)
    own = np.indices(sizes)[:, None].astype(np.int64)
    rows = [sym.expand_dims(along, axis=0) if i == axis else sym.constant(own[i]) for i in range(len(sizes))]
    return typed(sym.Concat(*rows, dim=0) if len(rows) > 1 else rows[0], np.int64, (len(rows), *sizes))


@rule("GatherElements")
def gather_elements(sym, data, indices, *, axis=0):
    axis %= rank(data)
    coordinates = _coordinates(sym, indices, axis, fixed(data, [axis])[0])
    return without_bool(sym, lambda d: sym.gather_nd(d, coordinates), data)


_COMBINED = {"mul": "_npi_multiply", "max": "_npi_maximum", "min": "_npi_minimum"}


def _scattered(sym, data, updates, coordinates, reduction):
    """The data with updates at their coordinates."""
    if data.dtype == BOOL:
        if reduction != "none":
            raise Unsupported(f"reduction={reduction!r} of bool")
        wide = [cast(sym, v, np.uint8) for v in (data, updates)]
        return cast(sym, typed(_scattered(sym, *wide, coordinates, reduction), np.uint8), BOOL)
    shape = fixed(data)
    if reduction == "add":
        return sym._npi_add(data, sym._backward_gather_nd(updates, coordinates, shape=shape))
    if reduction in _COMBINED:
        return _combined(sym, data, updates, coordinates, _COMBINED[reduction])
    ones = sym.ones_like(updates)
    has_update = sym.scatter_nd(ones, coordinates, shape=shape)
    return sym._npi_where(has_update, sym.scatter_nd(updates, coordinates, shape=shape), data)


def _combined(sym, data, updates, coordinates, op):
    """One update after the other, since several may have the same coordinates."""
    shape = fixed(data)
    indexed = fixed(coordinates, [0])[0]
    rows, width = math.prod(shape[:indexed]), math.prod(shape[indexed:])
    strides = np.array([math.prod(shape[i + 1 : indexed]) for i in range(indexed)], np.int64)
    flat = typed(sym.Reshape(cast(sym, coordinates, np.int64), shape=(indexed, -1)), np.int64)
    positions = typed(sym._np_sum(sym._npi_multiply(flat, strides[:, None]), axis=(0,), keepdims=False), np.int64, (None,))
    items = [positions, typed(sym.Reshape(updates, shape=(-1, width)), data.dtype, (None, width))]
    table = typed(sym.Reshape(data, shape=(rows, width)), data.dtype, (rows, width))

    def step(position, update, state):
        here = typed(sym._npi_equal(position, np.arange(rows, dtype=np.int64)[:, None]), BOOL)
        return (typed(sym._npi_where(here, sym.call(op, state, update), state), data.dtype, (rows, width)),)

    _, (found,) = foreach(sym, step, items, [table])
    return sym.Reshape(found, shape=shape)


@rule("ScatterElements")
def scatter_elements(sym, data, indices, updates, *, axis=0, reduction="none"):
    axis %= rank(data)
    return _scattered(sym, data, updates, _coordinates(sym, indices, axis, fixed(data, [axis])[0]), reduction)


@rule("ScatterND")
def scatter_nd(sym, data, indices, updates, *, reduction="none"):
    sizes = np.array(fixed(data)[: fixed(indices, [-1])[0]], indices.dtype)
    inside = sym._npi_mod(indices, sizes)
    order = _last_first(rank(indices))
    shape = None if None in (indices.shape or (None,)) else tuple(indices.shape[a] for a in order)
    return _scattered(sym, data, updates, typed(sym.transpose(inside, axes=order), indices.dtype, shape), reduction)


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
def topk(sym, X, K, *, axis=-1, largest=1, sorted=1):
    """k=0 means all elements in MXNet, which are sorted where `K` is computed, and the first of them gathered."""
    axis %= rank(X)
    k = None if K.array is None else int(K.array.reshape(-1)[0])
    if k == 0:
        raise Unsupported("K=0, which means all elements in MXNet")
    attributes = {"axis": axis, "ret_typ": "both", "is_ascend": not largest, "dtype": "int64", "outputs": 2}
    found = sym.topk(X, k=k or 0, **attributes)
    if k is None:
        count = result_sizes(sym, lambda a: computed.integer(sym, K))[axis]
        if isinstance(count, int):
            return sym.topk(X, k=count, **attributes)
        if count != X.shape[axis]:
            values, indices = (typed(v, t, X.shape) for v, t in zip(found, (X.dtype, np.int64), strict=True))
            return tuple(taken(sym, v, axis, positions(sym, count), count) for v in (values, indices))
    return found


@rule("CumSum")
def cumsum(sym, x, axis, *, exclusive=0, reverse=0):
    """Along an axis that is only known at run time, the sums along all axes are computed."""
    if axis.array is None:
        wrapped = typed(sym._npi_mod(axis, np.array(rank(x), axis.dtype)), axis.dtype)
        found = _cumulated(sym, x, 0, exclusive, reverse)
        for a in range(1, rank(x)):
            chosen = typed(sym._npi_equal(wrapped, np.array(a, axis.dtype)), BOOL)
            found = typed(sym._npi_where(chosen, _cumulated(sym, x, a, exclusive, reverse), found), x.dtype)
        return found
    return _cumulated(sym, x, int(axis.array.reshape(-1)[0]) % rank(x), exclusive, reverse)


def _cumulated(sym, x, axis, exclusive, reverse):
    flipped = sym.reverse(x, axis=(axis,)) if reverse else x
    total = sym.cumsum(flipped, axis=axis)
    total = sym._npi_subtract(total, flipped) if exclusive else total
    return typed(sym.reverse(total, axis=(axis,)) if reverse else total, x.dtype)


@rule("Trilu")
def trilu(sym, input, k: Int | None = None, *, upper=1):
    if 0 in input.shape:
        return input
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
def range_(sym, start, limit, delta):
    """The number of elements is the declared size, or computed as ONNX does."""
    numbers = [None if v.array is None else v.array.item() for v in (start, limit, delta)]
    if None not in numbers:
        return np.arange(*numbers).astype(start.dtype)

    def length(axis):
        wide = [computed.vector_of_one(sym, v) for v in (typed(sym._npi_subtract(limit, start), start.dtype, ()), delta)]
        return computed.ceil_divided(sym, *wide)

    (size,) = result_sizes(sym, length)
    steps = sym._npi_multiply(cast(sym, positions(sym, size), start.dtype), delta)
    return sym._npi_add(start, steps)


@rule("NonZero")
def nonzero(sym, X):
    flags = typed(sym.Reshape(cast(sym, _is_nonzero(sym, X), np.int32), shape=(-1,)), np.int32)
    rows = nonzero_positions(sym, flags, _size(X.shape), _declared(sym, 1))
    found, stride = [], computed.integer(sym, 1)
    for axis in range(rank(X))[::-1]:
        whole = typed(sym.broadcast_div(rows, stride), np.int64)
        found.insert(0, typed(sym._npi_mod(whole, computed.size_of(sym, X, axis)), np.int64))
        stride = computed.multiply(sym, stride, computed.size_of(sym, X, axis))
    return sym.stack(*found, axis=0)


def _size(shape):
    """The number of elements, None if that is dynamic."""
    return math.prod(shape) if all(isinstance(d, int) for d in shape) else None


def _is_nonzero(sym, x):
    return x if x.dtype == BOOL else typed(sym._npi_not_equal(x, np.zeros(1, x.dtype)), BOOL)


def _declared(sym, axis):
    """The size of the result along an axis, None if it is dynamic."""
    shape = declared(sym)
    return shape[axis] if shape is not None and isinstance(shape[axis], int) else None


def nonzero_positions(sym, flags, size, count):
    """The positions of ones in a vector of `size` int32 flags, of which there are `count`; both are None if they are dynamic."""
    if count is None or size is None:
        every = typed(sym._contrib_arange_like(cast(sym, flags, np.float64), start=0, step=1, axis=0), np.float64)
        return cast(sym, computed.selected(sym, every, flags), np.int64)
    if count == 0:
        return sym.literal(np.zeros(0, np.int64))
    every = np.arange(size, dtype=np.int32)
    last = sym._npi_multiply(sym._npi_subtract(np.array([1], np.int32), flags), np.array([size], np.int32))
    keys = typed(sym._npi_add(last, every), np.int32)
    return cast(sym, typed(sym.topk(keys, axis=0, k=count, ret_typ="value", is_ascend=True), np.int32), np.int64)


@rule("Compress")
def compress(sym, input, condition, *, axis=None):
    if axis is None:
        input = typed(sym.Reshape(input, shape=(-1,)), input.dtype, (_size(input.shape),))
    axis = 0 if axis is None else axis % rank(input)
    rows = nonzero_positions(sym, cast(sym, condition, np.int32), _size(condition.shape), _declared(sym, axis))
    return without_bool(sym, lambda v: sym.take(v, rows, axis=axis, mode="clip"), input)
