"""Resampling images, and regions and boxes in them."""

from __future__ import annotations

import io
import itertools
import math

import numpy as np

from onnxbridge.errors import LimitError, Unsupported
from onnxbridge.frameworks import pillow
from onnxbridge.hub.io.resource_limits import claim, current
from onnxbridge.rules import Floats, Int, Ints
from onnxbridge.runtime.executor.numpy.dtypes import is_float, widened
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.resampling import cubic, mixed, nearest, scales_and_sizes, source_points


@rule("Resize")
@widened
def resize(
    X,
    roi: Floats | None = None,
    scales: Floats | None = None,
    sizes: Ints | None = None,
    *,
    antialias=0,
    axes=None,
    coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75,
    exclude_outside=0,
    extrapolation_value=0.0,
    keep_aspect_ratio_policy="stretch",
    mode="nearest",
    nearest_mode="round_prefer_floor",
):
    axes = list(range(X.ndim)) if axes is None else [a % X.ndim for a in axes]
    scales, sizes = scales_and_sizes([X.shape[a] for a in axes], scales, sizes, keep_aspect_ratio_policy)
    full = list(X.shape)
    for a, n in zip(axes, sizes, strict=True):
        if n < 0:
            raise ValueError(f"an axis cannot have {n} elements")
        full[a] = n
    claim(full, X.dtype)
    y = X if is_float(X.dtype) or mode == "nearest" else X.astype(np.float64)
    outside = np.zeros((1,) * X.ndim, bool)
    for i, (a, scale, n) in enumerate(zip(axes, scales, sizes, strict=True)):
        if n == X.shape[a] and scale == 1 and coordinate_transformation_mode != "tf_crop_and_resize":
            continue
        region = (roi[i], roi[i + len(axes)]) if roi else (0.0, 1.0)
        points = source_points(n, X.shape[a], scale, coordinate_transformation_mode, region)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            beyond = (points < 0) | (points > X.shape[a] - 1)
            outside = outside | beyond.reshape([-1 if d == a else 1 for d in range(X.ndim)])
        if mode == "nearest":
            y = np.take(y, nearest(points, X.shape[a], nearest_mode), a)
        else:
            taps = mixed(points, X.shape[a], mode, min(scale, 1.0) if antialias else 1.0, cubic_coeff_a, bool(exclude_outside))
            y = _weighted(y, a, *taps)
    if outside.any():
        y = np.where(outside, extrapolation_value, y)
    return _as_type(y, X.dtype)


def _weighted(x, axis, index, weights):
    """Interpolate along an axis."""
    shape = [-1 if d == axis else 1 for d in range(x.ndim)]
    total = 0
    for i, w in zip(index, weights, strict=True):
        total = total + np.take(x, i, axis) * w.astype(x.dtype).reshape(shape)
    return total


def _as_type(y, dtype):
    """The result in the data's type; integers are truncated, and clamped where cubic interpolation overshoots."""
    if dtype.kind in "iu" and y.dtype.kind == "f":
        info = np.iinfo(dtype)
        y = np.clip(y, info.min, info.max)
    return y.astype(dtype, copy=False)


@rule("GridSample")
@widened
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    """Any number of axes; each output is interpolated from 2 or 4 neighbours per axis."""
    sizes = X.shape[2:]
    kind = X.dtype if X.dtype.kind == "f" else np.float64
    claim((*X.shape[:2], *grid.shape[1:-1]), kind)
    samples = np.arange(X.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
    per_axis = []
    for d, n in enumerate(sizes):
        p = grid[..., len(sizes) - 1 - d].astype(kind)
        p = (p + 1) / 2 * (n - 1) if align_corners else ((p + 1) * n - 1) / 2
        per_axis.append(_grid_taps(p, n, mode, padding_mode, bool(align_corners)))
    total = 0
    for taps in itertools.product(*per_axis):
        weight = 1
        for _, w in taps:
            weight = weight * w
        picked = np.moveaxis(X[(samples, slice(None), *(i for i, _ in taps))], -1, 1)
        total = total + picked * np.asarray(weight)[:, None]
    return _as_type(total, X.dtype)


def _grid_taps(p, n, mode, padding_mode, align_corners):
    """The indices along one axis that points are interpolated from, each with its weights."""
    if mode == "nearest":
        if padding_mode != "zeros":
            p = _folded(p, n, padding_mode, align_corners)
        return [_tap(np.rint(p), np.ones_like(p), n, padding_mode, align_corners)]
    low = np.floor(p)
    if mode == "linear":
        part = p - low
        weighted = [(low, 1 - part), (low + 1, part)]
    elif mode == "cubic":
        weighted = [(low + i, cubic(p - low - i, -0.75)) for i in range(-1, 3)]
    else:
        raise Unsupported(f"mode {mode!r}")
    return [_tap(at, w, n, padding_mode, align_corners) for at, w in weighted]


def _tap(at, weight, n, padding_mode, align_corners):
    if padding_mode == "zeros":
        weight = np.where((at >= 0) & (at < n), weight, 0).astype(at.dtype)
        at = np.clip(at, 0, n - 1)
    else:
        at = _folded(at, n, padding_mode, align_corners)
    return np.nan_to_num(at).astype(np.intp), weight


def _folded(p, n, padding_mode, align_corners):
    """Points clamped or reflected between the first and the last element."""
    if padding_mode == "reflection":
        first, span = (0.0, n - 1.0) if align_corners else (-0.5, float(n))
        p = span - np.abs((p - first) % (2 * span) - span) + first if span else np.zeros_like(p)
    elif padding_mode != "border":
        raise Unsupported(f"padding_mode {padding_mode!r}")
    return np.clip(p, 0, n - 1)


@rule("AffineGrid")
@widened
def affine_grid(theta, size: Ints, *, align_corners=0):
    space = len(size) - 2
    claim((size[0], *size[2:], space), theta.dtype)
    lines = []
    for n in size[2:]:
        step = (np.linspace(-1, 1, n) if n > 1 else np.zeros(1)) if align_corners else (np.arange(n) * 2 + 1) / n - 1
        lines.append(step.astype(theta.dtype))
    base = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:], theta.dtype)], -1)
    grid = base.reshape(-1, space + 1) @ theta.swapaxes(1, 2)
    return grid.reshape(theta.shape[0], *size[2:], space)


@rule("RoiAlign")
@widened
def roi_align(
    X,
    rois,
    batch_indices,
    *,
    coordinate_transformation_mode="half_pixel",
    mode="avg",
    output_height=1,
    output_width=1,
    sampling_ratio=0,
    spatial_scale=1.0,
):
    half = coordinate_transformation_mode == "half_pixel"
    corners = rois * X.dtype.type(spatial_scale) - X.dtype.type(0.5 if half else 0)
    claim((rois.shape[0], X.shape[1], output_height, output_width), X.dtype)
    y = np.zeros((rois.shape[0], X.shape[1], output_height, output_width), X.dtype)
    for r, (left, top, right, bottom) in enumerate(corners):
        width, height = right - left, bottom - top
        if not half:
            width, height = max(width, 1), max(height, 1)
        rows, tall = _roi_points(top, height, output_height, sampling_ratio)
        columns, wide_ = _roi_points(left, width, output_width, sampling_ratio)
        if not tall or not wide_:
            continue
        image, pool = X[int(batch_indices[r])], _largest_of_bins if mode == "max" else _mean_of_bins
        pooled = pool(image, _roi_taps(rows, X.shape[2]), output_height)
        y[r] = pool(pooled.swapaxes(1, 2), _roi_taps(columns, X.shape[3]), output_width).swapaxes(1, 2)
    return y


def _mean_of_bins(image, taps, bins):
    """The mean over the points of each bin along the second axis: bilinear interpolation is one of rows, then of columns."""
    count = len(taps[0][0]) // bins
    bin_of = np.arange(bins * count) // count
    if np.isfinite(image).all():
        share = np.zeros((bins, image.shape[1]), image.dtype)
        for at, weight in taps:
            np.add.at(share, (bin_of, at), weight)
        return share @ image / image.dtype.type(count)
    y = np.zeros((image.shape[0], bins, image.shape[2]), image.dtype)  # a product of matrices would spread NaN to other bins
    inside = np.flatnonzero(taps[0][1] + taps[1][1])
    for at, weight in taps:
        np.add.at(y, (slice(None), bin_of[inside]), image[:, at[inside]] * weight[inside, None])
    return y / image.dtype.type(count)


def _largest_of_bins(image, taps, bins):
    """The maximum over the weighted neighbours one by one, not over their sums; no weight is negative, so that axes separate."""
    largest = np.maximum(*(image[:, at] * weight[:, None] for at, weight in taps))
    return largest.reshape(image.shape[0], bins, -1, image.shape[2]).max(axis=2)


def _roi_points(start, length, bins, ratio):
    """The sampling points of all bins along one axis, and how many there are in each."""
    each = length / bins
    count = ratio if ratio > 0 else max(0, math.ceil(each))
    return start + (np.arange(bins * count) + start.dtype.type(0.5)) * each / max(count, 1), count


def _roi_taps(points, size):
    """Both neighbours of each point with their weights; a point more than one element outside has weight 0."""
    inside = (points >= -1) & (points <= size)
    p = np.clip(points, 0, size - 1)
    low = np.floor(p).astype(np.intp)
    part = p - low
    return [(low, np.where(inside, 1 - part, 0)), (np.minimum(low + 1, size - 1), np.where(inside, part, 0))]


@rule("NonMaxSuppression")
def non_max_suppression(
    boxes,
    scores,
    max_output_boxes_per_class: Int = 0,
    iou_threshold=None,
    score_threshold=None,
    *,
    center_point_box=0,
):
    limit = 0.0 if iou_threshold is None else iou_threshold.reshape(())
    if center_point_box:
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        edges = y - h / 2, x - w / 2, y + h / 2, x + w / 2
    else:
        a, b, c, d = np.moveaxis(boxes, -1, 0)
        edges = np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)
    chosen = []
    for batch, cls in np.ndindex(*scores.shape[:2]):
        s = scores[batch, cls]
        order = np.argsort(-s, kind="stable")
        if score_threshold is not None:
            order = order[s[order] > score_threshold.reshape(())]
        selected = _suppressed([e[batch] for e in edges], order, limit, max_output_boxes_per_class)
        chosen += [(batch, cls, i) for i in selected]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _suppressed(edges, order, limit, most):
    top, left, bottom, right = edges
    area = (bottom - top) * (right - left)
    selected = []
    while order.size and len(selected) < most:
        current().check_time()
        i, order = order[0], order[1:]
        selected.append(int(i))
        tall = np.minimum(bottom[i], bottom[order]) - np.maximum(top[i], top[order])
        across = np.minimum(right[i], right[order]) - np.maximum(left[i], left[order])
        shared = np.maximum(tall, 0) * np.maximum(across, 0)
        union = area[i] + area[order] - shared
        order = order[~((union > 0) & (shared > limit * union))]
    return selected


# The formats of the standard; JPEG2000 and PPM include all of their families.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


@rule("ImageDecoder")
def image_decoder(encoded_stream, *, pixel_format="RGB"):
    """An image (height, width, channels); empty if it cannot be decoded."""
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise Unsupported(f"pixel_format {pixel_format!r}")
    decoder, channels = pillow(), 1 if pixel_format == "Grayscale" else 3
    try:
        with decoder.open(io.BytesIO(encoded_stream.tobytes()), formats=_FORMATS) as image:
            claim((image.height, image.width, 4), np.uint8)
            pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    except decoder.DecompressionBombError as e:
        raise LimitError(f"ImageDecoder: {e}") from e
    except (OSError, SyntaxError, ValueError):
        return np.zeros((0, 0, channels), np.uint8)
    return pixels.reshape(*pixels.shape[:2], channels)[:, :, :: -1 if pixel_format == "BGR" else 1]
