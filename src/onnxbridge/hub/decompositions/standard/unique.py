"""Unique elements: sorted, and cut where one differs from the one before it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import places
from onnxbridge.hub.ir.values import rank


def _sorted(op, values):
    """The values in order, and where each stood; equal ones keep their order."""
    return op.TopK(values, op.Shape(values), largest=0, sorted=1, outputs=2)


def _ranks(op, rows):
    """For each row how many others come before it, compared element by element."""
    one, other = op.Unsqueeze(rows, [1]), op.Unsqueeze(rows, [0])
    differ = op.Not(op.Equal(one, other))
    first = op.ArgMax(op.Cast(differ, to=ir.DataType.INT32), axis=2, keepdims=1)
    smaller = op.GatherElements(op.Cast(op.Greater(one, other), to=ir.DataType.INT32), first, axis=2)
    return op.ReduceSum(op.Cast(smaller, to=ir.DataType.INT64), [1, 2], keepdims=0)


@expand("Unique")
def unique(op, X, *, axis=None, sorted=1):
    if X.dtype.name == "STRING":
        raise Unsupported("strings, which no simpler operator orders")
    keys = op.Cast(X, to=ir.DataType.INT32) if X.dtype.name == "BOOL" else X
    if axis is None:
        keys = op.Reshape(keys, [-1])
    else:
        axis %= rank(X)
        order = [axis, *(d for d in range(rank(X)) if d != axis)]
        keys = _ranks(op, op.Flatten(op.Transpose(keys, perm=order), axis=1))
    values, origin = _sorted(op, keys)
    before, after = op.Slice(values, [0], [-1], [0]), op.Slice(values, [1], [np.iinfo(np.int64).max], [0])
    # the first of all begins a group, unless there is none
    head = op.Slice(op.GreaterOrEqual(origin, np.int64(0)), [0], [1], [0])
    starts = op.Concat(head, op.Not(op.Equal(before, after)), axis=0)
    cuts = op.Squeeze(op.NonZero(starts), [0])
    first = op.Gather(origin, cuts, axis=0)
    group = op.Sub(op.CumSum(op.Cast(starts, to=ir.DataType.INT64), np.int64(0)), np.int64(1))
    counts = op.Sub(op.Concat(op.Slice(cuts, [1], [np.iinfo(np.int64).max], [0]), op.Shape(origin), axis=0), cuts)
    _, back = _sorted(op, origin)
    inverse = op.Gather(group, back, axis=0)
    if not sorted:
        first, turn = _sorted(op, first)
        counts = op.Gather(counts, turn, axis=0)
        inverse = op.Gather(op.ScatterElements(turn, turn, places(op, op.size(turn, 0)), axis=0), inverse, axis=0)
    return op.Gather(op.Reshape(X, [-1]) if axis is None else X, first, axis=axis or 0), first, inverse, counts
