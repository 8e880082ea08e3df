"""Slices, pads, repetitions and parts whose bounds are computed when the model runs: the elements at computed positions."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import computed_sizes as computed
from onnxbridge.backends.mxnet.ops.dynamic_sizes import declared, is_static, ones_of, positions, result_sizes
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, rank, sliced, typed, without_bool


def sliced_at_run_time(sym, data, starts, ends, axes, steps):
    """Each axis by the positions of its elements."""
    sizes = declared(sym)
    first = all(v is None or (v.array is not None and np.all(v.array == usual)) for v, usual in ((starts, 0), (steps, 1)))
    if first and sizes is not None and not is_static(sizes) and None not in sizes:
        return _first_elements(sym, data, sizes)
    forward = steps is None or (steps.array is not None and bool(np.all(steps.array > 0)))
    for axis in _sliced_axes(data, starts, axes):
        count = sizes[axis] if sizes is not None else None
        if count is not None and count == data.shape[axis] and forward:
            continue
        start, end, step = (
            _for_axis(sym, v, axes, axis, rank(data), other) for v, other in ((starts, 0), (ends, computed.LARGEST), (steps, 1))
        )
        size = computed.size_of(sym, data, axis)
        back = computed.less(sym, step, 0)
        highest = computed.where(sym, back, computed.subtract(sym, size, 1), size)
        start = computed.minimum(sym, computed.maximum(sym, _from_front(sym, start, size), 0), highest)
        if count is None:
            lowest = computed.where(sym, back, -1, 0)
            end = computed.minimum(sym, computed.maximum(sym, _from_front(sym, end, size), lowest), highest)
            count = computed.ceil_divided(sym, computed.subtract(sym, end, start), step)
        at = typed(sym._npi_add(start, sym._npi_multiply(positions(sym, count), step)), np.int64)
        data = taken(sym, data, axis, at, count)
    return data


def _first_elements(sym, data, shape):
    """The first elements of each axis, as many as the result has."""
    axes = [axis for axis, (size, count) in enumerate(zip(data.shape, shape, strict=True)) if size != count]
    if not axes:
        return data
    like = ones_of(sym, [shape[axis] if axis in axes else 1 for axis in range(rank(data))], np.float32)
    return without_bool(sym, lambda v: sym.slice_like(v, like, axes=tuple(axes)), data)


def _sliced_axes(data, starts, axes):
    """The axes that a Slice changes, all where they are computed."""
    if axes is None:
        return range(fixed(starts, [0])[0])
    return range(rank(data)) if axes.array is None else [a % rank(data) for a in axes.array.reshape(-1).tolist()]


def _from_front(sym, index, size):
    """An index that counts from the end where it is negative."""
    return computed.where(sym, computed.less(sym, index, 0), computed.add(sym, index, size), index)


def _for_axis(sym, values, axes, axis, count, otherwise):
    """The element of an integer vector that is for an axis, as a vector of one; `otherwise` if there is none."""
    if values is None:
        return computed.integer(sym, otherwise)
    if axes is None or axes.array is not None:
        listed = list(range(fixed(values, [0])[0])) if axes is None else [a % count for a in axes.array.reshape(-1).tolist()]
        return computed.element(sym, values, listed.index(axis)) if axis in listed else computed.integer(sym, otherwise)
    wrapped = typed(sym._npi_mod(cast(sym, axes, np.int64), np.array([count])), np.int64)
    here = typed(sym._npi_equal(wrapped, np.array([axis])), BOOL)
    gaps = sym._npi_where(here, sym._npi_subtract(cast(sym, values, np.int64), np.array([otherwise])), np.array([0]))
    total = typed(sym._np_sum(typed(gaps, np.int64), axis=(0,), keepdims=True), np.int64, (1,))
    return computed.add(sym, total, otherwise)


def taken(sym, x, axis, at, count):
    """The elements at positions along an axis."""
    shape = (*x.shape[:axis], count if isinstance(count, (int, str)) else None, *x.shape[axis + 1 :])
    if count == 0:
        return typed(sliced(sym, x, axis, 0, 0), x.dtype, shape)
    return typed(without_bool(sym, lambda v: sym.take(v, at, axis=axis, mode="clip"), x), x.dtype, shape)


def padded_at_run_time(sym, data, pads, constant_value, axes, mode):
    """Every axis by the positions of its elements in the data."""
    inside = None
    count = fixed(pads, [0])[0] // 2
    pads = cast(sym, pads, np.int64)
    before = typed(sliced(sym, pads, 0, 0, count), np.int64, (count,))
    after = typed(sliced(sym, pads, 0, count, 2 * count), np.int64, (count,))

    def total(axis):
        added = computed.add(sym, *(_for_axis(sym, v, axes, axis, rank(data), 0) for v in (before, after)))
        return computed.add(sym, computed.size_of(sym, data, axis), added)

    for axis, count in enumerate(result_sizes(sym, total)):
        size = computed.size_of(sym, data, axis)
        shift = _for_axis(sym, before, axes, axis, rank(data), 0)
        at = typed(sym._npi_subtract(positions(sym, count), shift), np.int64)
        if mode == "wrap":
            at = typed(sym._npi_mod(at, size), np.int64)
        elif mode == "reflect":
            period = computed.maximum(sym, computed.multiply(sym, computed.subtract(sym, size, 1), 2), 1)
            at = typed(sym._npi_mod(at, period), np.int64)
            front = typed(sym._npi_less(at, size), BOOL)
            at = typed(sym._npi_where(front, at, sym._npi_subtract(period, at)), np.int64)
        elif mode == "constant":
            low = cast(sym, typed(sym._npi_less(np.array([-1]), at), BOOL), np.int32)
            fits = sym._npi_multiply(low, cast(sym, typed(sym._npi_less(at, size), BOOL), np.int32))
            wide = tuple(-1 if a == axis else 1 for a in range(rank(data)))
            fits = typed(sym.Reshape(fits, shape=wide), np.int32)
            inside = fits if inside is None else typed(sym._npi_multiply(inside, fits), np.int32)
        data = taken(sym, data, axis, at, count)
    if inside is None:
        return data
    filler = np.zeros(1, data.dtype) if constant_value is None else constant_value
    if data.dtype == BOOL:
        filler = np.zeros(1, np.uint8) if constant_value is None else cast(sym, constant_value, np.uint8)
    return without_bool(sym, lambda v: sym._npi_where(cast(sym, inside, BOOL), v, filler), data)


def tiled_at_run_time(sym, input, repeats):
    """Each axis by positions that begin anew with every repetition."""

    def product(axis):
        return computed.multiply(sym, computed.size_of(sym, input, axis), computed.element(sym, repeats, axis))

    for axis, total in enumerate(result_sizes(sym, product)):
        at = typed(sym._npi_mod(positions(sym, total), computed.size_of(sym, input, axis)), np.int64)
        input = taken(sym, input, axis, at, total)
    return input


def parts_at_run_time(sym, input, axis, sizes):
    """Parts of an axis, one after the other."""
    first, parts = computed.integer(sym, 0), []
    for size in sizes:
        at = typed(sym._npi_add(positions(sym, size), first), np.int64)
        parts.append(taken(sym, input, axis, at, size))
        first = computed.add(sym, first, size)
    return tuple(parts)
