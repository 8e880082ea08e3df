"""Images: resizing as weighted sums of gathered elements, and choosing among boxes."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import element, places, scalar
from onnxbridge.hub.ir.fold import static

_DOUBLE = 11


@expand("Resize")
def resize(
    op, X, roi=None, scales=None, sizes=None, *, antialias=0, axes=None,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch", mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    """Coordinates are computed in float64 from scales that are float32, as the standard's own definition does."""
    if X.shape is None:
        raise Unsupported("Resize of a value of unknown rank")
    axes = [a % len(X.shape) for a in (range(len(X.shape)) if axes is None else axes)]
    if scales is not None and scales.shape is not None and tuple(scales.shape) == (0,):
        scales = None
    lengths = [op.size(X, a) for a in axes]
    factors, results = _scaling(op, lengths, scales, sizes, keep_aspect_ratio_policy)
    crop = coordinate_transformation_mode == "tf_crop_and_resize"
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"mode={mode!r}")
    whole = X.dtype.is_integer()
    y = op.Cast(X, to=1) if whole and mode != "nearest" else X
    for i in reversed(range(len(axes))):
        factor, same = static(factors[i]), static(results[i])
        kept = sizes is None or (same is not None and same.item() == lengths[i])
        if factor is not None and factor.item() == 1.0 and not crop and kept:
            continue
        ends = None if roi is None else [element(op, op.Cast(roi, to=_DOUBLE), j) for j in (i, i + len(axes))]
        place = _places(op, coordinate_transformation_mode, factors[i], lengths[i], results[i], ends)
        last = op.Sub(_double(op, lengths[i]), 1.0)
        if mode == "nearest":
            nearest = op.Clip(_nearest(op, place, nearest_mode), 0.0, last)
            y = op.Gather(y, op.Cast(nearest, to=7), axis=axes[i])
        else:
            y = _weighted(op, y, axes[i], place, last, factors[i], mode, cubic_coeff_a, antialias, exclude_outside)
        if crop:
            outside = op.Or(op.Less(place, 0.0), op.Greater(place, last))
            outside = op.Reshape(outside, [-1] + [1] * (len(X.shape) - axes[i] - 1))
            y = op.Where(outside, op.Cast(op.constant(np.float32(extrapolation_value)), to=y.dtype), y)
    if y is X:
        return op.Identity(X)
    return op.Cast(y, to=X.dtype) if whole and mode != "nearest" else y


def _double(op, length):
    """A size as a float64 scalar."""
    return op.constant(np.float64(length)) if isinstance(length, int) else op.Cast(length, to=_DOUBLE)


def _scaling(op, lengths, scales, sizes, policy):
    """The factor and the new length of each axis, float64 and int64 scalars."""
    if scales is not None:
        wide = op.Cast(scales, to=_DOUBLE)
        factors = [element(op, wide, i) for i in range(len(lengths))]
        results = [op.Cast(op.Floor(op.Mul(f, _double(op, n))), to=7) for f, n in zip(factors, lengths, strict=True)]
        return factors, results
    if sizes is None:
        raise Unsupported("Resize with neither scales nor sizes")
    wanted = [element(op, sizes, i) for i in range(len(lengths))]
    factors = [op.Div(op.Cast(w, to=_DOUBLE), _double(op, n)) for w, n in zip(wanted, lengths, strict=True)]
    if policy == "stretch":
        return factors, wanted
    one = (op.Min if policy == "not_larger" else op.Max)(*factors)
    rounded = [op.Cast(op.Floor(op.Add(op.Mul(one, _double(op, n)), 0.5)), to=7) for n in lengths]
    return [one] * len(lengths), rounded


def _places(op, mode, factor, length, result, ends):
    """For each element of the new axis its place on the old one."""
    steps = op.Cast(op.Range(np.int64(0), result, np.int64(1)), to=_DOUBLE)
    size, count = _double(op, length), op.Cast(result, to=_DOUBLE)
    centre = op.Sub(op.Div(op.Add(steps, 0.5), factor), 0.5)
    if mode == "half_pixel":
        return centre
    if mode == "asymmetric":
        return op.Div(steps, factor)
    if mode == "pytorch_half_pixel":
        return op.Where(op.Equal(count, 1.0), op.Mul(steps, 0.0), centre)
    if mode == "half_pixel_symmetric":
        return op.Add(centre, op.Mul(op.Div(size, 2.0), op.Sub(1.0, op.Div(count, op.Mul(factor, size)))))
    if mode == "align_corners":
        exact = op.Mul(factor, size)
        alone = op.Equal(exact, 1.0)
        stretch = op.Div(op.Sub(size, 1.0), op.Where(alone, 1.0, op.Sub(exact, 1.0)))
        return op.Where(alone, op.Mul(steps, 0.0), op.Mul(steps, stretch))
    if mode == "tf_crop_and_resize" and ends is not None:
        start, end = ends
        alone = op.Equal(count, 1.0)
        stretch = op.Div(op.Mul(op.Sub(end, start), op.Sub(size, 1.0)), op.Where(alone, 1.0, op.Sub(count, 1.0)))
        spread = op.Add(op.Mul(start, op.Sub(size, 1.0)), op.Mul(steps, stretch))
        middle = op.Mul(op.Mul(op.Add(start, end), 0.5), op.Sub(size, 1.0))
        return op.Where(alone, op.Add(op.Mul(steps, 0.0), middle), spread)
    raise Unsupported(f"coordinate_transformation_mode={mode!r}")


def _nearest(op, place, mode):
    if mode == "round_prefer_floor":
        return op.Ceil(op.Sub(place, 0.5))
    if mode == "round_prefer_ceil":
        return op.Floor(op.Add(place, 0.5))
    if mode in ("floor", "ceil"):
        return op.Floor(place) if mode == "floor" else op.Ceil(place)
    raise Unsupported(f"nearest_mode={mode!r}")


def _weighted(op, y, axis, place, last, factor, mode, a, antialias, exclude_outside):
    """Sums over the elements around each place; a place on an element counts as the right end of the interval before it."""
    base = op.Sub(op.Ceil(place), 1.0)
    ratio = op.Unsqueeze(op.Sub(place, base), [1])
    reach = 1.0 if mode == "linear" else 2.0
    shrink = op.Min(factor, op.constant(np.float64(1.0))) if antialias else op.constant(np.float64(1.0))
    first = op.Add(op.Floor(op.Div(-reach, shrink)), 1.0)
    around = op.Range(first, op.Sub(2.0, first), op.constant(np.float64(1.0)))
    distance = op.Abs(op.Mul(op.Sub(op.Unsqueeze(around, [0]), ratio), shrink))
    weights = op.Clip(op.Sub(1.0, distance), 0.0, 1.0) if mode == "linear" else cubic(op, distance, a)
    index = op.Add(op.Unsqueeze(base, [1]), op.Unsqueeze(around, [0]))
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
    square = op.Mul(x, x)
    cube = op.Mul(square, x)
    near = op.Add(op.Sub(op.Mul(cube, a + 2), op.Mul(square, a + 3)), 1.0)
    far = op.Sub(op.Add(op.Sub(op.Mul(cube, a), op.Mul(square, 5 * a)), op.Mul(x, 8 * a)), 4 * a)
    return op.Where(op.LessOrEqual(x, 1.0), near, op.Where(op.Less(x, 2.0), far, 0.0))


@expand("NonMaxSuppression")
def non_max_suppression(
    op, boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    """In each turn of a loop every class of every image picks its best box left, and drops those that overlap with it."""
    if max_output_boxes_per_class is None:
        raise Unsupported("no limit, which means no boxes")
    count = op.size(boxes, 1)
    most = op.Min(op.Reshape(max_output_boxes_per_class, np.zeros(0, np.int64)), scalar(op, count))
    limit = op.constant(np.float32(0)) if iou_threshold is None else op.Reshape(iou_threshold, np.zeros(0, np.int64))
    top, left, bottom, right = (op.Unsqueeze(e, [1]) for e in _edges(op, boxes, center_point_box))
    area = op.Mul(op.Sub(bottom, top), op.Sub(right, left))
    gone = op.constant(np.float32(-np.inf))
    live = scores if score_threshold is None else op.Where(op.Greater(scores, score_threshold), scores, gone)

    every = op.Reshape(places(op, count), [1, 1, -1])

    def body(trip, going, live):
        best = op.ArgMax(live, axis=2, keepdims=1)
        valid = op.Greater(op.GatherElements(live, best, axis=2), gone)

        def own(edge):
            return op.GatherElements(op.Expand(edge, op.Shape(live)), best, axis=2)

        tall = op.Sub(op.Min(own(bottom), bottom), op.Max(own(top), top))
        wide = op.Sub(op.Min(own(right), right), op.Max(own(left), left))
        shared = op.Mul(op.Relu(tall), op.Relu(wide))
        union = op.Sub(op.Add(own(area), area), shared)
        overlaps = op.And(op.Greater(union, 0.0), op.Greater(shared, op.Mul(union, limit)))
        itself = op.Equal(every, best)
        return [going, op.Where(op.Or(overlaps, itself), gone, live), op.Squeeze(best, [2]), op.Squeeze(valid, [2])]

    _, best, valid = op.Loop(most, True, live, body=body, outputs=3)
    # (turns, images, classes) as (images, classes, turns), so that what is chosen comes in the order of the standard
    best, valid = (op.Transpose(v, perm=[1, 2, 0]) for v in (best, valid))
    chosen = op.Transpose(op.NonZero(valid), perm=[1, 0])
    return op.Concat(op.Slice(chosen, [0], [2], [1]), op.Unsqueeze(op.GatherND(best, chosen), [1]), axis=1)


def _edges(op, boxes, center_point_box):
    """Top, left, bottom and right of boxes."""
    a, b, c, d = (op.Gather(boxes, i, axis=2) for i in range(4))
    if center_point_box:
        half = [op.Mul(v, 0.5) for v in (c, d)]
        return op.Sub(b, half[1]), op.Sub(a, half[0]), op.Add(b, half[1]), op.Add(a, half[0])
    return op.Min(a, c), op.Min(b, d), op.Max(a, c), op.Max(b, d)
