"""Unique: sorts the elements and starts a group wherever one differs from its predecessor."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import rank


def _sorted(op, values):
    """The sorted values and their original indices; the sort is stable."""
    return op.TopK(values, op.Shape(values), largest=0, sorted=1, outputs=2)


def _ranks(op, rows):
    """For each row the number of rows that are lexicographically smaller."""
    one, other = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])
    differ = op.Not(op.Equal(one, other))
    first = op.ArgMax(op.Cast(differ, to=ir.DataType.INT32), axis=2, keepdims=1)
    smaller = op.GatherElements(op.Cast(op.Greater(one, other), to=ir.DataType.INT32), first, axis=2)
    return op.ReduceSum(op.Cast(smaller, to=ir.DataType.INT64), [1, 2], keepdims=0)


@decompose("Unique")
def unique(op, X, *, axis=None, sorted=1):
    if X.dtype.name == "STRING":
        raise Unsupported("Unique of strings: no simpler operator sorts strings")
    keys = op.Cast(X, to=ir.DataType.INT32) if X.dtype.name == "BOOL" else X
    if axis is None:
        keys = op.Reshape(keys, [-1])
    else:
        axis %= rank(X)
        order = [axis, *(d for d in range(rank(X)) if d != axis)]
        keys = _ranks(op, op.Flatten(op.Transpose(keys, perm=order), axis=1))
    values, origin = _sorted(op, keys)
    before, after = op.Slice(values, [0], [-1], [0]), op.Slice(values, [1], [np.iinfo(np.int64).max], [0])
    # the first element starts a group; empty if there are no elements
    first_start = op.Slice(op.GreaterOrEqual(origin, np.int64(0)), [0], [1], [0])
    starts = op.Concat(first_start, op.Not(op.Equal(before, after)), axis=0)
    group_starts = op.Squeeze(op.NonZero(starts), [0])
    first = op.Gather(origin, group_starts, axis=0)
    group_index = op.Sub(op.CumSum(op.Cast(starts, to=ir.DataType.INT64), np.int64(0)), np.int64(1))
    counts = op.Sub(op.Concat(op.Slice(group_starts, [1], [np.iinfo(np.int64).max], [0]), op.Shape(origin), axis=0), group_starts)
    _, inverse_order = _sorted(op, origin)
    inverse = op.Gather(group_index, inverse_order, axis=0)
    if not sorted:
        first, order = _sorted(op, first)
        counts = op.Gather(counts, order, axis=0)
        inverse = op.Gather(op.ScatterElements(order, order, arange(op, op.size(order, 0)), axis=0), inverse, axis=0)
    return op.Gather(op.Reshape(X, [-1]) if axis is None else X, first, axis=axis or 0), first, inverse, counts
