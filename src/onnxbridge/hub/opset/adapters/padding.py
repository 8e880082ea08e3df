"""Padding by gathering: for each axis the order in which padding repeats its elements, known now or computed by the model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import flattened
from onnxbridge.hub.opset.known_values import dtype_of, known, rank_of

_INT64 = ir.DataType.INT64


def whole(op, data, pads, axes):
    """Paddings of some axes as paddings of all."""
    if axes is None:
        return pads
    rank, given = rank_of(data), known(axes)
    if given is None:
        axes = op.Cast(axes, to=_INT64)
        axes = op.Add(axes, op.Mul(op.Cast(op.Less(axes, np.array(0, np.int64)), to=_INT64), np.array(rank, np.int64)))
        mine = op.Cast(op.Equal(op.Unsqueeze(axes, [1]), np.arange(rank, dtype=np.int64)), to=_INT64)
        ends = op.Mul(op.Reshape(pads, [2, -1, 1]), op.Unsqueeze(mine, [0]))  # of each end, each given axis, each axis
        return op.Reshape(op.ReduceSum(ends, [1], keepdims=0), [-1])
    axes = [int(a) % rank for a in given]
    if len(axes) != len(set(axes)):
        raise Unsupported("an axis is padded twice")
    # each padding is moved to its axis: a gather from the paddings with a zero behind them
    where = [len(axes) * 2] * (2 * rank)
    for i, axis in enumerate(axes):
        where[axis], where[axis + rank] = i, i + len(axes)
    return op.Gather(op.Concat(pads, np.zeros(1, np.int64), axis=0), np.array(where, np.int64), axis=0)


def gathered(op, data, pads, mode, value=None):
    """`data` padded on every axis; negative paddings cut off."""
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
    """Which element stands at each place; what is constant stands behind the last one."""
    if mode == "constant":
        order = np.pad(np.arange(size), (max(begin, 0), max(end, 0)), constant_values=size)
    else:
        order = np.pad(np.arange(size), (max(begin, 0), max(end, 0)), mode=mode)
    return order[max(-begin, 0) : len(order) - max(-end, 0)].astype(np.int64)


def _slab(op, data, axis, value):
    """One element of the constant on an axis, as wide as the data on the others."""
    shape = [1 if i == axis else size for i, size in enumerate(flattened.sizes(op, data))]
    return op.Expand(op.Reshape(value, [1] * len(shape)), op.dims(shape))


def _computed_order(op, size, begin, end, mode):
    """As `_order`, where the size or the paddings are scalars that the model computes."""
    size = op.constant(np.array(size, np.int64)) if isinstance(size, int) else size
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    place = op.Sub(flattened.counted(op, op.Add(op.Add(begin, size), end)), begin)
    below, last = op.Less(place, zero), op.Sub(size, one)
    if mode == "constant":
        outside = op.Or(below, op.Greater(place, last))
        return _chosen(op, outside, size, place)
    if mode == "edge":
        place = _chosen(op, below, op.Sub(place, place), place)
        return _chosen(op, op.Greater(place, last), last, place)
    # wrapping goes on after the last element with the first, reflecting goes back and forth
    period = size if mode == "wrap" else op.Add(last, last)
    period = _chosen(op, op.Equal(period, zero), op.Add(period, one), period)
    rest = op.Sub(place, op.Mul(op.Div(place, period), period))
    rest = op.Add(rest, op.Mul(op.Cast(op.Less(rest, zero), to=_INT64), period))
    if mode == "wrap":
        return rest
    return _chosen(op, op.Greater(rest, last), op.Sub(period, rest), rest)


def _chosen(op, condition, a, b):
    """`a` where the condition holds, otherwise `b`, of whole numbers and before there was Where."""
    return op.Add(b, op.Mul(op.Cast(condition, to=_INT64), op.Sub(a, b)))
