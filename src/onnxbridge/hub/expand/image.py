"""Images: resizing and sampling as weighted sums of gathered elements, and choosing among boxes."""

from __future__ import annotations

import itertools

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand
from onnxbridge.hub.fold import static

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
        if factor is not None and factor.item() == 1.0 and not crop and same is not None and same.item() == lengths[i]:
            continue
        ends = None if roi is None else [_element(op, op.Cast(roi, to=_DOUBLE), j) for j in (i, i + len(axes))]
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


def _element(op, values, i):
    return op.Squeeze(op.Slice(values, [i], [i + 1], [0]), [0])


def _scaling(op, lengths, scales, sizes, policy):
    """The factor and the new length of each axis, float64 and int64 scalars."""
    if scales is not None:
        wide = op.Cast(scales, to=_DOUBLE)
        factors = [_element(op, wide, i) for i in range(len(lengths))]
        results = [op.Cast(op.Floor(op.Mul(f, _double(op, n))), to=7) for f, n in zip(factors, lengths, strict=True)]
        return factors, results
    if sizes is None:
        raise Unsupported("Resize with neither scales nor sizes")
    wanted = [_element(op, sizes, i) for i in range(len(lengths))]
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
    weights = op.Clip(op.Sub(1.0, distance), 0.0, 1.0) if mode == "linear" else _cubic(op, distance, a)
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


def _cubic(op, x, a):
    square = op.Mul(x, x)
    cube = op.Mul(square, x)
    near = op.Add(op.Sub(op.Mul(cube, a + 2), op.Mul(square, a + 3)), 1.0)
    far = op.Sub(op.Add(op.Sub(op.Mul(cube, a), op.Mul(square, 5 * a)), op.Mul(x, 8 * a)), 4 * a)
    return op.Where(op.LessOrEqual(x, 1.0), near, op.Where(op.Less(x, 2.0), far, 0.0))


@expand("GridSample")
def grid_sample(op, X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """Any number of axes: each output mixes the neighbours of its point, 1, 2 or 4 in each, picked from the flattened axes."""
    if X.shape is None or not all(isinstance(n, int) for n in X.shape[2:]):
        raise Unsupported("a dynamic size")
    sizes = list(X.shape[2:])
    axes = []
    for d, n in enumerate(sizes):
        p = op.Gather(grid, len(sizes) - 1 - d, axis=-1)
        p = op.Mul(op.Add(p, 1.0), (n - 1) / 2) if align_corners else op.Div(op.Sub(op.Mul(op.Add(p, 1.0), float(n)), 1.0), 2.0)
        taps = _grid_taps(op, p, n, mode, padding_mode, align_corners)
        axes.append([_grid_tap(op, at, w, n, padding_mode, align_corners) for at, w in taps])
    batch, channels, points = op.size(X, 0), op.size(X, 1), [op.size(grid, i) for i in range(1, len(sizes) + 1)]
    flat = op.Reshape(X, op.dims([batch, channels, -1]))
    total = None
    for taps in itertools.product(*axes):
        place, weight = taps[0]
        for n, (at, w) in zip(sizes[1:], taps[1:], strict=True):
            place, weight = (
                op.Add(op.Mul(place, float(n)), at),
                w if weight is None else weight if w is None else op.Mul(weight, w),
            )
        index = op.Reshape(place, op.dims([batch, 1, -1]))
        picked = op.GatherElements(flat, op.Expand(index, op.dims([1, channels, 1])), axis=2)
        part = picked if weight is None else op.Mul(picked, op.Cast(op.Reshape(weight, op.dims([batch, 1, -1])), to=X.dtype))
        total = part if total is None else op.Add(total, part)
    return op.Reshape(total, op.dims([batch, channels, *points]))


_INT64 = 7


def _grid_taps(op, p, n, mode, padding_mode, align_corners):
    """The places along one axis that points are mixed from, each with its weight, None for one."""
    if mode == "nearest":
        return [(op.Round(p if padding_mode == "zeros" else _folded(op, p, n, padding_mode, align_corners)), None)]
    low = op.Floor(p)
    part = op.Sub(p, low)
    if mode == "linear":
        return [(low, op.Sub(1.0, part)), (op.Add(low, 1.0), part)]
    if mode == "cubic":
        return [(op.Add(low, float(i)), _cubic(op, op.Abs(op.Sub(part, float(i))), -0.75)) for i in range(-1, 3)]
    raise Unsupported(f"mode {mode!r}")


def _grid_tap(op, at, weight, n, padding_mode, align_corners):
    """The place inside of the axis; with zeros around it, one outside weighs nothing."""
    if padding_mode != "zeros":
        return op.Cast(_folded(op, at, n, padding_mode, align_corners), to=_INT64), weight
    inside = op.Cast(op.And(op.GreaterOrEqual(at, 0.0), op.Less(at, float(n))), to=at.dtype)
    return op.Cast(op.Clip(at, 0.0, n - 1.0), to=_INT64), inside if weight is None else op.Mul(weight, inside)


def _folded(op, p, n, padding_mode, align_corners):
    """Points brought back between the first and the last element."""
    if padding_mode == "reflection":
        first, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
        if not span:
            return op.Mul(p, 0.0)
        around = op.Sub(op.Sub(p, first), op.Mul(op.Floor(op.Div(op.Sub(p, first), 2 * span)), 2 * span))
        p = op.Add(op.Sub(span, op.Abs(op.Sub(around, span))), first)
    elif padding_mode != "border":
        raise Unsupported(f"padding_mode {padding_mode!r}")
    return op.Clip(p, 0.0, n - 1.0)


@expand("NonMaxSuppression")
def non_max_suppression(
    op, boxes, scores, max_output_boxes_per_class=None, iou_threshold=None, score_threshold=None, *, center_point_box=0
):
    """In each turn of a loop every class of every image picks its best box left, and drops those that overlap with it."""
    if max_output_boxes_per_class is None or boxes.shape is None or not isinstance(boxes.shape[1], int):
        raise Unsupported("no limit, or a dynamic number of boxes")
    count = boxes.shape[1]
    most = op.Min(op.Reshape(max_output_boxes_per_class, np.zeros(0, np.int64)), np.int64(count))
    limit = op.constant(np.float32(0)) if iou_threshold is None else op.Reshape(iou_threshold, np.zeros(0, np.int64))
    top, left, bottom, right = (op.Unsqueeze(e, [1]) for e in _edges(op, boxes, center_point_box))
    area = op.Mul(op.Sub(bottom, top), op.Sub(right, left))
    gone = op.constant(np.float32(-np.inf))
    live = scores if score_threshold is None else op.Where(op.Greater(scores, score_threshold), scores, gone)

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
        itself = op.Equal(op.constant(np.arange(count).reshape(1, 1, -1)), best)
        return [going, op.Where(op.Or(overlaps, itself), gone, live), op.Squeeze(best, [2]), op.Squeeze(valid, [2])]

    _, best, valid = op.Loop(most, True, live, body=body, outputs=3)
    # (turns, images, classes) as (images, classes, turns), so that what is chosen comes in the order of the standard
    best, valid = (op.Transpose(v, perm=[1, 2, 0]) for v in (best, valid))
    places = op.Transpose(op.NonZero(valid), perm=[1, 0])
    return op.Concat(op.Slice(places, [0], [2], [1]), op.Unsqueeze(op.GatherND(best, places), [1]), axis=1)


def _edges(op, boxes, center_point_box):
    """Top, left, bottom and right of boxes."""
    a, b, c, d = (op.Gather(boxes, i, axis=2) for i in range(4))
    if center_point_box:
        half = [op.Mul(v, 0.5) for v in (c, d)]
        return op.Sub(b, half[1]), op.Sub(a, half[0]), op.Add(b, half[1]), op.Add(a, half[0])
    return op.Min(a, c), op.Min(b, d), op.Max(a, c), op.Max(b, d)
