"""Padding by Gather: for each axis the source index of every padded element, constant or computed by the model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import flattened
from onnxbridge.hub.opset.known_values import dtype_of, known, rank_of

_INT64 = ir.DataType.INT64


def pads_of_all_axes(op, data, pads, axes):
    """Pads of some axes as pads of all axes."""
    if axes is None:
        return pads
    rank, static_axes = rank_of(data), known(axes)
    if static_axes is None:
        axes = op.Cast(axes, to=_INT64)
        axes = op.Add(axes, op.Mul(op.Cast(op.Less(axes, np.array(0, np.int64)), to=_INT64), np.array(rank, np.int64)))
        selected = op.Cast(op.Equal(op.Unsqueeze(axes, [1]), np.arange(rank, dtype=np.int64)), to=_INT64)
        ends = op.Mul(op.Reshape(pads, [2, -1, 1]), op.Unsqueeze(selected, [0]))  # of each end, each given axis, each axis
        return op.Reshape(op.ReduceSum(ends, [1], keepdims=0), [-1])
    axes = [int(a) % rank for a in static_axes]
    if len(axes) != len(set(axes)):
        raise Unsupported("an axis is padded twice")
    # a gather from the pads with a zero appended for the other axes
    where = [len(axes) * 2] * (2 * rank)
    for i, axis in enumerate(axes):
        where[axis], where[axis + rank] = i, i + len(axes)
    return op.Gather(op.Concat(pads, np.zeros(1, np.int64), axis=0), np.array(where, np.int64), axis=0)


def pad_by_gather(op, data, pads, mode, value=None):
    """`data` padded on every axis; negative pads crop."""
    rank, found = rank_of(data), known(pads)
    if mode == "constant" and value is None:
        value = op.constant(0, dtype=dtype_of(data))
    for axis, size in enumerate(flattened.sizes(op, data)):
        if found is not None and not found[axis] and not found[axis + rank]:
            continue
        if found is not None and isinstance(size, int):
            order = _order(size, int(found[axis]), int(found[axis + rank]), mode)
        else:
            begin, end = (op.Gather(pads, np.array(i, np.int64), axis=0) for i in (axis, axis + rank))
            order = _computed_order(op, size, begin, end, mode)
        if mode == "constant":
            data = op.Concat(data, _slab(op, data, axis, value), axis=axis)
        data = op.Gather(data, order, axis=axis)
    return op.Identity(data)


def _order(size, begin, end, mode):
    """The source index of each padded element; index `size` is the constant."""
    if mode == "constant":
        order = np.pad(np.arange(size), (max(begin, 0), max(end, 0)), constant_values=size)
    else:
        order = np.pad(np.arange(size), (max(begin, 0), max(end, 0)), mode=mode)
    return order[max(-begin, 0) : len(order) - max(-end, 0)].astype(np.int64)


def _slab(op, data, axis, value):
    """The constant, expanded to size 1 on an axis and to the sizes of the data on the others."""
    shape = [1 if i == axis else size for i, size in enumerate(flattened.sizes(op, data))]
    return op.Expand(op.Reshape(value, [1] * len(shape)), op.dims(shape))


def _computed_order(op, size, begin, end, mode):
    """As `_order`, if the size or the pads are computed by the model."""
    size = op.constant(np.array(size, np.int64)) if isinstance(size, int) else size
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    index = op.Sub(flattened.map_range(op, op.Add(op.Add(begin, size), end)), begin)
    below, last = op.Less(index, zero), op.Sub(size, one)
    if mode == "constant":
        outside = op.Or(below, op.Greater(index, last))
        return _select(op, outside, size, index)
    if mode == "edge":
        index = _select(op, below, op.Sub(index, index), index)
        return _select(op, op.Greater(index, last), last, index)
    # wrap continues with the first element after the last one, reflect goes back and forth
    period = size if mode == "wrap" else op.Add(last, last)
    period = _select(op, op.Equal(period, zero), op.Add(period, one), period)
    rest = op.Sub(index, op.Mul(op.Div(index, period), period))
    rest = op.Add(rest, op.Mul(op.Cast(op.Less(rest, zero), to=_INT64), period))
    if mode == "wrap":
        return rest
    return _select(op, op.Greater(rest, last), op.Sub(period, rest), rest)


def _select(op, condition, a, b):
    """Where(condition, a, b) for integers, before Where existed."""
    return op.Add(b, op.Mul(op.Cast(condition, to=_INT64), op.Sub(a, b)))
