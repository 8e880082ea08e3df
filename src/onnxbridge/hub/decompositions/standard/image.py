"""Resize as weighted sums of gathered elements, and NonMaxSuppression as a loop."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange, element, scalar
from onnxbridge.hub.ir.fold import constant_array

_DOUBLE = 11


@decompose("Resize")
def resize(
    op, X, roi=None, scales=None, sizes=None, *, antialias=0, axes=None,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch", mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Computes coordinates in float64 from float32 scales, like the reference implementation of ONNX.

    Integers are interpolated in float64, then clamped and truncated.
    """
    if X.shape is None:
        raise Unsupported("Resize of an input of unknown rank")
    axes = [a % len(X.shape) for a in (range(len(X.shape)) if axes is None else axes)]
    if scales is not None and scales.shape is not None and tuple(scales.shape) == (0,):
        scales = None
    lengths = [op.size(X, a) for a in axes]
    factors, results = _scaling(op, lengths, scales, sizes, keep_aspect_ratio_policy)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"mode={mode!r}")
    is_integer = X.dtype.is_integer() and mode != "nearest"
    y = op.Cast(X, to=_DOUBLE) if is_integer else X
    for i in range(len(axes)):
        factor, static_length = constant_array(factors[i]), constant_array(results[i])
        length_unchanged = sizes is None or (static_length is not None and static_length.item() == lengths[i])
        if factor is not None and factor.item() == 1.0 and not crop and length_unchanged:
            continue
        roi_ends = None if roi is None else [element(op, op.Cast(roi, to=_DOUBLE), j) for j in (i, i + len(axes))]
        coordinates = _input_coordinates(op, coordinate_transformation_mode, factors[i], lengths[i], results[i], roi_ends)
        last = op.Sub(_double(op, lengths[i]), 1.0)
        if mode == "nearest":
            nearest = op.Clip(_nearest(op, coordinates, nearest_mode), 0.0, last)
            y = op.Gather(y, op.Cast(nearest, to=7), axis=axes[i])
        else:
            y = _weighted(op, y, axes[i], coordinates, last, factors[i], mode, cubic_coeff_a, antialias, exclude_outside)
        if crop:
            outside = op.Or(op.Less(coordinates, 0.0), op.Greater(coordinates, last))
            outside = op.Reshape(outside, [-1] + [1] * (len(X.shape) - axes[i] - 1))
            y = op.Where(outside, op.Cast(op.constant(np.float32(extrapolation_value)), to=y.dtype), y)
    if y is X:
        return op.Identity(X)
    return op.Cast(op.Clip(y, *_bounds(X.dtype)), to=X.dtype) if is_integer else y


def _bounds(dtype):
    """The least and the greatest float64 that an integer type represents."""
    info = ml_dtypes.iinfo(dtype.numpy())
    greatest = np.float64(info.max)
    return np.float64(info.min), greatest if int(greatest) <= info.max else np.nextafter(greatest, 0)


def _double(op, length):
    """A size (integer or scalar value) as a float64 scalar."""
    return op.constant(np.float64(length)) if isinstance(length, int) else op.Cast(length, to=_DOUBLE)


def _scaling(op, lengths, scales, sizes, policy):
    """The scale (float64 scalar) and the new length (int64 scalar) of each axis."""
    if scales is not None:
        wide_scales = op.Cast(scales, to=_DOUBLE)
        factors = [element(op, wide_scales, i) for i in range(len(lengths))]
        results = [op.Cast(op.Floor(op.Mul(f, _double(op, n))), to=7) for f, n in zip(factors, lengths, strict=True)]
        return factors, results
    if sizes is None:
        raise Unsupported("Resize needs scales or sizes")
    lengths_out = [element(op, sizes, i) for i in range(len(lengths))]
    factors = [op.Div(op.Cast(w, to=_DOUBLE), _double(op, n)) for w, n in zip(lengths_out, lengths, strict=True)]
    if policy == "stretch":
        return factors, lengths_out
    common_factor = (op.Min if policy == "not_larger" else op.Max)(*factors)
    rounded = [op.Cast(op.Floor(op.Add(op.Mul(common_factor, _double(op, n)), 0.5)), to=7) for n in lengths]
    return [common_factor] * len(lengths), rounded


def _input_coordinates(op, mode, factor, length, result, roi_ends):
    """The input coordinate of each element of the output axis."""
    positions = op.Cast(op.Range(np.int64(0), result, np.int64(1)), to=_DOUBLE)
    size, count = _double(op, length), op.Cast(result, to=_DOUBLE)
    centered = op.Sub(op.Div(op.Add(positions, 0.5), factor), 0.5)
    if mode == "half_pixel":
        return centered
    if mode == "asymmetric":
        return op.Div(positions, factor)
    if mode == "pytorch_half_pixel":
        return op.Where(op.Equal(count, 1.0), op.Mul(positions, 0.0), centered)
    if mode == "half_pixel_symmetric":
        offset = op.Mul(op.Div(size, 2.0), op.Sub(1.0, op.Div(count, op.Mul(factor, size))))
        return op.Sub(op.Add(offset, op.Div(op.Add(positions, 0.5), factor)), 0.5)  # in this order, as ONNX Runtime rounds
    if mode == "align_corners":
        exact = op.Mul(factor, size)
        is_single = op.Equal(exact, 1.0)
        spread = op.Div(op.Mul(positions, op.Sub(size, 1.0)), op.Where(is_single, 1.0, op.Sub(exact, 1.0)))
        return op.Where(is_single, op.Mul(positions, 0.0), spread)
    if mode == "tf_crop_and_resize" and roi_ends is not None:
        start, end = roi_ends
        is_single = op.Equal(count, 1.0)
        step = op.Div(op.Mul(op.Sub(end, start), op.Sub(size, 1.0)), op.Where(is_single, 1.0, op.Sub(count, 1.0)))
        mapped = op.Add(op.Mul(start, op.Sub(size, 1.0)), op.Mul(positions, step))
        center = op.Mul(op.Mul(op.Add(start, end), 0.5), op.Sub(size, 1.0))
        return op.Where(is_single, op.Add(op.Mul(positions, 0.0), center), mapped)
    raise Unsupported(f"coordinate_transformation_mode={mode!r}")


def _nearest(op, coordinates, mode):
    if mode == "round_prefer_floor":
        return op.Ceil(op.Sub(coordinates, 0.5))
    if mode == "round_prefer_ceil":
        return op.Floor(op.Add(coordinates, 0.5))
    if mode in ("floor", "ceil"):
        return op.Floor(coordinates) if mode == "floor" else op.Ceil(coordinates)
    raise Unsupported(f"nearest_mode={mode!r}")


def _weighted(op, y, axis, coordinates, last, factor, mode, a, antialias, exclude_outside):
    """Weighted sums of the neighbors of each coordinate.

    A coordinate that falls on an element is treated as the right end of the interval before it.
    """
    base = op.Sub(op.Ceil(coordinates), 1.0)
    radius = 1.0 if mode == "linear" else 2.0
    filter_scale = op.Min(factor, op.constant(np.float64(1.0))) if antialias else op.constant(np.float64(1.0))
    first_offset = op.Add(op.Floor(op.Div(-radius, filter_scale)), 1.0)
    offsets = op.Range(first_offset, op.Sub(2.0, first_offset), op.constant(np.float64(1.0)))
    index = op.Add(op.Unsqueeze(base, [1]), op.Unsqueeze(offsets, [0]))
    distance = op.Abs(op.Mul(op.Sub(index, op.Unsqueeze(coordinates, [1])), filter_scale))
    weights = op.Clip(op.Sub(1.0, distance), 0.0, 1.0) if mode == "linear" else cubic(op, distance, a)
    if exclude_outside:
        inside = op.And(op.GreaterOrEqual(index, 0.0), op.LessOrEqual(index, last))
        weights = op.Where(inside, weights, 0.0)
    if exclude_outside or antialias:
        weights = op.Div(weights, op.ReduceSum(weights, [1], keepdims=1))
    gathered = op.Gather(y, op.Cast(op.Clip(index, 0.0, last), to=7), axis=axis)
    rest = len(y.shape) - axis - 1
    weights = op.Cast(op.Unsqueeze(weights, list(range(2, 2 + rest))) if rest else weights, to=y.dtype)
    return op.ReduceSum(op.Mul(gathered, weights), [axis + 1], keepdims=0)


def cubic(op, x, a):
    """The cubic convolution kernel with coefficient `a` at distances x >= 0."""
    inner = op.Add(op.Mul(op.Mul(op.Sub(op.Mul(x, a + 2), a + 3), x), x), 1.0)
    outer = op.Sub(op.Mul(op.Add(op.Mul(op.Sub(op.Mul(x, a), 5 * a), x), 8 * a), x), 4 * a)
    return op.Where(op.LessOrEqual(x, 1.0), inner, op.Where(op.Less(x, 2.0), outer, 0.0))


@decompose("NonMaxSuppression")
def non_max_suppression(
    op, boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    """Each iteration selects the best remaining box of every class of every image and removes those that overlap with it."""
    if max_output_boxes_per_class is None:
        raise Unsupported("without max_output_boxes_per_class no boxes are selected")
    count = op.size(boxes, 1)
    max_boxes = op.Min(op.Reshape(max_output_boxes_per_class, np.zeros(0, np.int64)), scalar(op, count))
    limit = op.constant(np.float32(0)) if iou_threshold is None else op.Reshape(iou_threshold, np.zeros(0, np.int64))
    top, left, bottom, right = (op.Unsqueeze(e, [1]) for e in _edges(op, boxes, center_point_box))
    area = op.Mul(op.Sub(bottom, top), op.Sub(right, left))
    removed = op.constant(np.float32(-np.inf))
    remaining = scores if score_threshold is None else op.Where(op.Greater(scores, score_threshold), scores, removed)

    box_indices = op.Reshape(arange(op, count), [1, 1, -1])

    def any_left(remaining):
        left = op.Cast(op.Greater(remaining, removed), to=ir.DataType.FLOAT)
        return op.Greater(op.ReduceSum(left, keepdims=0), np.float32(0))  # also without any class, where ReduceMax has no result

    def body(iteration, condition, remaining, selected_at):
        best = op.ArgMax(remaining, axis=2, keepdims=1)

        def of_best(edge):
            return op.GatherElements(op.Expand(edge, op.Shape(remaining)), best, axis=2)

        overlap_height = op.Sub(op.Min(of_best(bottom), bottom), op.Max(of_best(top), top))
        overlap_width = op.Sub(op.Min(of_best(right), right), op.Max(of_best(left), left))
        shared = op.Mul(op.Relu(overlap_height), op.Relu(overlap_width))
        union = op.Sub(op.Add(of_best(area), area), shared)
        overlaps = op.And(op.Greater(union, 0.0), op.Greater(shared, op.Mul(union, limit)))
        is_best = op.Equal(box_indices, best)
        selected = op.And(is_best, op.Greater(remaining, removed))
        selected_at = op.Where(selected, op.Cast(iteration, to=ir.DataType.FLOAT), selected_at)
        remaining = op.Where(op.Or(overlaps, is_best), removed, remaining)
        return [any_left(remaining), remaining, selected_at]

    never = op.Expand(np.float32(np.inf), op.Shape(remaining))
    _, selected_at = op.Loop(max_boxes, any_left(remaining), remaining, never, body=body, outputs=2)
    selected_at, best = op.TopK(selected_at, op.Reshape(max_boxes, [1]), axis=2, largest=0, outputs=2)
    valid = op.Less(selected_at, np.float32(np.inf))
    selected = op.Transpose(op.NonZero(valid), perm=[1, 0])
    return op.Concat(op.Slice(selected, [0], [2], [1]), op.Unsqueeze(op.GatherND(best, selected), [1]), axis=1)


def _edges(op, boxes, center_point_box):
    """The top, left, bottom and right edges of boxes."""
    a, b, c, d = (op.Gather(boxes, i, axis=2) for i in range(4))
    if center_point_box:
        half = [op.Mul(v, 0.5) for v in (c, d)]
        return op.Sub(b, half[1]), op.Sub(a, half[0]), op.Add(b, half[1]), op.Add(a, half[0])
    return op.Min(a, c), op.Min(b, d), op.Max(a, c), op.Max(b, d)
