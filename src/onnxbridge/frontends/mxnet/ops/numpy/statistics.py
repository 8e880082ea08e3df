"""Differences, counts, histograms and percentiles."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.numpy.reduction import NARROW
from onnxbridge.frontends.mxnet.ops.reduction import reduced_axes
from onnxbridge.frontends.mxnet.ops.shape import LAST
from onnxbridge.hub.ir.values import cast, like, rank

FLOAT, INT32, INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64


def _differences(op, a, axis):
    return op.Sub(op.Slice(a, [1], [LAST], [axis]), op.Slice(a, [0], [-1], [axis]))


@rule("_npi_diff")
def diff(op, a, *, n=1, axis=-1):
    for _ in range(n):
        a = _differences(op, a, axis)
    return a if n else op.Identity(a)


@rule("_npi_ediff1d")
def ediff1d(
    op, input1, input2=None, input3=None, *, to_begin_arr_given=False, to_end_arr_given=False, to_begin_scalar=None,
    to_end_scalar=None,
):  # fmt: skip
    """Differences of the flattened array, between the values at its two ends."""
    arrays = [x for x in (input2, input3) if x is not None]
    begin = arrays.pop(0) if to_begin_arr_given else to_begin_scalar
    end = arrays.pop(0) if to_end_arr_given else to_end_scalar
    parts = [begin, _differences(op, op.Reshape(input1, [-1]), 0), end]
    kind = input1.dtype.numpy()
    parts = [op.constant(np.array([p]).astype(kind)) if isinstance(p, (int, float)) else p for p in parts if p is not None]
    return op.Concat(*[op.Reshape(p, [-1]) for p in parts], axis=0)


@rule("_npi_bincount")
def bincount(op, data, weights=None, *, minlength=0, has_weights=False):
    """How often each integer from 0 to the largest occurs, or the sum of its weights."""
    positions = op.Reshape(cast(op, data, INT64), [-1])
    largest = op.ReduceMax(op.Concat(positions, np.array([minlength - 1]), axis=0), keepdims=1)
    kind = weights.dtype if has_weights else data.dtype
    wide = INT32 if kind in NARROW else kind
    zeros = op.Expand(op.constant(np.zeros((), wide.numpy())), op.Add(largest, 1))
    ones = cast(op, op.Reshape(weights, [-1]), wide) if has_weights else op.Expand(
        op.constant(np.ones((), wide.numpy())), op.Shape(positions)
    )  # fmt: skip
    return cast(op, op.ScatterElements(zeros, positions, ones, axis=0, reduction="add"), kind)


@rule("_histogram")
def histogram(op, data, bins=None, *, bin_cnt=None, range=None):
    """How many elements lie between each two edges, the last one included, and the edges."""
    values = op.Reshape(data, [-1])
    if bins is None:
        if bin_cnt is None or range is None:
            raise Unsupported("a histogram needs the edges, or their number and the range")
        bins = op.constant(np.linspace(*range, bin_cnt + 1).astype(data.dtype.numpy()))
    low, high = op.Slice(bins, [0], [-1]), op.Slice(bins, [1], [LAST])
    column = op.Unsqueeze(values, [1])
    last = op.Slice(bins, [-1], [LAST])
    inside = op.And(op.GreaterOrEqual(column, low), op.Less(column, high))
    at_end = op.And(op.Equal(column, last), op.Equal(high, last))
    counted = op.Cast(op.Or(inside, at_end), to=INT64)
    return op.ReduceSum(counted, [0], keepdims=0), op.Identity(bins)


@rule("_npi_percentile")
def percentile(op, a, q=None, *, axis=None, interpolation="linear", keepdims=False, q_scalar=None):
    """The positions in the sorted elements are computed in float32, as is the result of anything but float64."""
    axes = reduced_axes(a, axis, False)
    rest = [i for i in range(rank(a)) if i not in axes]
    kind = ir.DataType.DOUBLE if a.dtype == ir.DataType.DOUBLE else FLOAT
    moved = op.Transpose(a, perm=[*rest, *axes]) if rank(a) else a
    rows = op.Reshape(moved, op.Concat(op.Shape(moved, end=len(rest)), np.array([-1]), axis=0))
    count = op.Shape(rows, start=-1)
    ordered = cast(op, op.TopK(cast(op, rows, kind), count, axis=-1, largest=0, outputs=2)[0], kind)
    q = op.constant(np.float32(q_scalar)) if q is None else cast(op, q, FLOAT)
    last = op.Cast(op.Squeeze(op.Sub(count, 1), [0]), to=FLOAT)
    at = op.Div(op.Mul(q, last), 100.0)
    low, high = op.Floor(at), op.Ceil(at)

    def pick(position):
        return op.Gather(ordered, op.Cast(position, to=INT64), axis=len(rest))

    if interpolation == "linear":
        below, above, share = pick(low), pick(high), like(op, op.Sub(at, low), ordered)
        found = op.Add(op.Mul(below, op.Sub(1.0, share)), op.Mul(above, share))
    elif interpolation == "midpoint":
        found = op.Mul(op.Add(pick(low), pick(high)), 0.5)
    else:
        found = pick({"lower": low, "higher": high, "nearest": op.Floor(op.Add(at, 0.5))}[interpolation])
    if rank(q):  # the percentiles come first
        order = [*range(len(rest), len(rest) + rank(q)), *range(len(rest))]
        found = op.Transpose(found, perm=order)
    return op.Unsqueeze(found, [rank(q) + i for i in sorted(axes)]) if keepdims else found
