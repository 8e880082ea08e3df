"""RoiAlign and MaxRoiPool by gathering sampling points from the flattened images."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, scalar

_INT64 = ir.DataType.INT64


def _points(op, start, length, bins, ratio, size):
    """The sampling points along one axis.

    Returns the two neighbors of each point as (index, weight) pairs of shape (regions, bins * points), the number of points per
    bin, a mask of the points that exist, and the number of points per bin of each region.
    """
    dtype = start.dtype
    each = op.Div(length, float(bins))
    if ratio > 0:
        max_points, count = ratio, op.constant(np.full((1, 1, 1), ratio), dtype=dtype)
    else:
        count = op.Max(op.Ceil(op.Reshape(each, [-1, 1, 1])), 0.0)
        highest = op.ReduceMax(op.Concat(op.Reshape(count, [-1]), op.constant([1.0], dtype=dtype), axis=0), [0], keepdims=0)
        max_points = op.Cast(highest, to=_INT64)
    steps = op.Reshape(op.Cast(arange(op, max_points), to=dtype), [1, 1, -1])
    bin_ = op.constant(np.arange(bins).reshape(1, -1, 1), dtype=dtype)
    each, start = (op.Reshape(v, [-1, 1, 1]) for v in (each, start))
    within = op.Div(op.Add(steps, 0.5), op.Max(count, 1.0))
    point = op.Add(start, op.Mul(each, op.Add(within, bin_)))
    counts = op.Less(op.Add(steps, op.Mul(bin_, 0.0)), count)
    inside = op.And(op.GreaterOrEqual(point, -1.0), op.LessOrEqual(point, size))
    last = op.Sub(size, 1.0)
    point = op.Clip(point, 0.0, last)
    low = op.Floor(point)
    part = op.Sub(point, low)
    taps = [(low, op.Sub(1.0, part)), (op.Min(op.Add(low, 1.0), last), part)]
    flat = [0, -1]  # (regions, bins, points) with the last two joined
    taps = [(op.Reshape(op.Cast(at, to=_INT64), flat), op.Reshape(op.Where(inside, weight, 0.0), flat)) for at, weight in taps]
    return taps, scalar(op, max_points), op.Reshape(op.Add(op.Cast(counts, to=dtype), op.Mul(point, 0.0)), flat), count


@decompose("RoiAlign")
def roi_align(
    op, X, rois, batch_indices, *, coordinate_transformation_mode="half_pixel", mode="avg", output_height=1, output_width=1,
    sampling_ratio=0, spatial_scale=1.0,
):  # fmt: skip
    half = coordinate_transformation_mode == "half_pixel"
    if X.shape is None or len(X.shape) != 4 or mode not in ("avg", "max"):
        raise Unsupported(f"RoiAlign of an input that is not 4-D, or mode {mode!r}")
    height, width = (op.size(X, d) for d in (2, 3))
    corners = op.Sub(op.Mul(rois, spatial_scale), 0.5 if half else 0.0)
    left, top, right, bottom = (op.Gather(corners, np.int64(i), axis=1) for i in range(4))
    lengths = [op.Sub(bottom, top), op.Sub(right, left)]
    lengths = lengths if half else [op.Max(v, 1.0) for v in lengths]
    rows, row_points, row_mask, row_number = _points(
        op, top, lengths[0], output_height, sampling_ratio, scalar(op, height, X.dtype)
    )
    columns, column_points, column_mask, column_number = _points(
        op, left, lengths[1], output_width, sampling_ratio, scalar(op, width, X.dtype)
    )
    # channels last, so that one Gather reads all channels of a point
    image = op.Transpose(X, perm=[0, 2, 3, 1])
    image = op.reshape(image, [-1, op.size(X, 1)])
    first = op.Mul(op.Cast(batch_indices, to=_INT64), scalar(op, height))
    parts = []
    for row, row_weight in rows:
        for column, column_weight in columns:
            line = op.Mul(op.Add(row, op.Unsqueeze(first, [1])), scalar(op, width))
            found = op.Gather(image, op.Add(op.Unsqueeze(line, [2]), op.Unsqueeze(column, [1])), axis=0)
            weight = op.Mul(op.Unsqueeze(row_weight, [2]), op.Unsqueeze(column_weight, [1]))
            parts.append(op.Mul(found, op.Unsqueeze(weight, [3])))
    point_mask = op.Unsqueeze(op.Mul(op.Unsqueeze(row_mask, [2]), op.Unsqueeze(column_mask, [1])), [3])
    if mode == "max":
        # the maximum is over the weighted neighbors, not over their sums
        points = op.Where(op.Greater(point_mask, 0.5), op.Max(*parts), op.constant(-np.inf, dtype=X.dtype))
        reduce = op.ReduceMax
    else:
        points, reduce = op.Mul(op.Sum(*parts), point_mask), op.ReduceSum
    channels, regions = op.size(X, 1), op.size(rois, 0)
    y = reduce(op.reshape(points, _joined_sizes(op, [regions, output_height], [row_points, -1, channels])), [1], keepdims=0)
    y = reduce(
        op.reshape(y, _joined_sizes(op, [regions, output_height, output_width], [column_points, channels])), [1], keepdims=0
    )
    y = op.Transpose(op.reshape(y, [regions, output_height, output_width, channels]), perm=[0, 3, 1, 2])
    number = op.Reshape(op.Mul(row_number, column_number), [-1, 1, 1, 1])
    if mode == "max":
        return op.Where(op.Greater(number, 0.0), y, 0.0)
    return op.Div(y, op.Max(number, 1.0))


def _joined_sizes(op, joined, rest):
    """The product of the `joined` sizes, followed by the sizes in `rest`."""
    total = scalar(op, 1)
    for size in joined:
        total = op.Mul(total, scalar(op, size))
    return [total, *rest]


@decompose("MaxRoiPool")
def max_roi_pool(op, X, rois, *, pooled_shape, spatial_scale=1.0):
    """The maximum over the columns of each bin, then over its rows."""
    if X.shape is None or len(X.shape) != 4 or len(pooled_shape) != 2:
        raise Unsupported("MaxRoiPool of an input that is not 4-D")
    batch = op.Cast(op.Gather(rois, np.int64(0), axis=1), to=_INT64)
    scaled = op.Mul(rois, spatial_scale)
    # round half away from zero; a region has at least one element
    rounded = op.Mul(op.Floor(op.Add(op.Abs(scaled), 0.5)), op.Sign(scaled))
    left, top, right, bottom = (op.Reshape(op.Gather(rounded, np.int64(i), axis=1), [-1, 1, 1]) for i in range(1, 5))
    y = op.Gather(X, batch, axis=0)
    none = op.constant(-np.inf, dtype=X.dtype)
    for axis, start, end, bins in ((3, left, right, pooled_shape[1]), (2, top, bottom, pooled_shape[0])):
        inside = _within(op, start, end, bins, op.size(X, axis), X.dtype)
        # (regions, channels, rows, bins, columns), or (regions, channels, bins, rows, bins of columns)
        inside = op.Unsqueeze(inside, [1, 2] if axis == 3 else [1, 4])
        y = op.ReduceMax(op.Where(inside, op.Unsqueeze(y, [axis if axis == 3 else 2]), none), [4 if axis == 3 else 3], keepdims=0)
    return op.Where(op.Equal(y, none), 0.0, y)


def _within(op, start, end, bins, size, dtype):
    """Mask of the elements of an axis that each bin of each region covers, (regions, bins, elements)."""
    each = op.Div(op.Max(op.Add(op.Sub(end, start), 1.0), 1.0), float(bins))
    number = op.constant(np.arange(bins).reshape(1, -1, 1), dtype=dtype)
    first = op.Add(op.Floor(op.Mul(number, each)), start)
    bin_end = op.Add(op.Ceil(op.Mul(op.Add(number, 1.0), each)), start)
    at = op.Reshape(op.Cast(arange(op, size), to=dtype), [1, 1, -1])
    return op.And(op.GreaterOrEqual(at, first), op.Less(at, bin_end))
