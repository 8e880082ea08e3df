"""Image operators: Upsample, which Resize replaced, Resize, GridSample and RoiAlign."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.known_values import fixed_shape, known, rank_of
from onnxbridge.rules import Array, Floats, Ints


@up("Upsample", to=7)
def upsample_scale(op, X, *, height_scale, width_scale, mode="nearest"):
    return op.Upsample(X, scales=[1.0, 1.0, height_scale, width_scale], mode=_old_mode(mode))


def _old_mode(mode):
    return "linear" if mode == "bilinear" else mode


@up("Upsample", to=9)
def upsample(op, X, *, scales, mode="nearest"):
    return op.Upsample(X, np.array(scales, np.float32), mode=_old_mode(mode))


@up("Upsample", to=10)
def upsample_to_resize(op, X, scales, *, mode="nearest"):
    return op.Resize(X, scales, mode=mode)


@up("Resize", to=11)
def resize(op, X, scales, *, mode="nearest"):
    """Until opset 10 coordinates were asymmetric; nearest rounded down when enlarging and up when shrinking."""
    empty = np.zeros(0, np.float32)
    if mode != "nearest":
        return op.Resize(X, empty, scales, mode=mode, coordinate_transformation_mode="asymmetric")
    one = np.ones(1, np.float32)
    factors = known(scales)
    if factors is None:
        shrink, grow = op.Min(scales, one), op.Max(scales, one)
    else:
        shrink, grow = np.minimum(factors, one), np.maximum(factors, one)
    for factor, nearest in ((shrink, "ceil"), (grow, "floor")):
        if factors is None or nearest == "floor" or (factor != 1).any():
            X = op.Resize(X, empty, factor, coordinate_transformation_mode="asymmetric", nearest_mode=nearest)
    return X


@up("Resize", to=13)
def resize_roi(op, X, roi=None, scales=None, sizes=None, **attrs):
    """`scales` had to be given, empty, even if `sizes` is used."""
    if sizes is not None:
        scales = None
    return op.Resize(X, _unless_empty(roi), scales, sizes, **attrs)


def _unless_empty(value):
    return None if value is not None and value.shape is not None and value.shape[0] == 0 else value


@down("Resize", to=17)
def resize_axes(op, X, roi=None, scales=None, sizes=None, *, antialias=0, axes=None, keep_aspect_ratio_policy="stretch", **attrs):
    if antialias:
        raise Unsupported("opset 18 added antialias=1")
    if keep_aspect_ratio_policy != "stretch":
        raise Unsupported(f"opset 18 added keep_aspect_ratio_policy={keep_aspect_ratio_policy!r}")
    if axes is not None and list(axes) != [*range(rank_of(X))]:
        rank = rank_of(X)
        axes = [a % rank for a in axes]
        if roi is not None and roi.shape is not None and roi.shape[0] != 0:
            raise Unsupported("opset 18 added axes, here with a region of interest")
        where = np.array([axes.index(i) if i in axes else len(axes) for i in range(rank)], np.int64)
        if scales is not None:
            factors = known(scales)
            if factors is not None:
                scales = op.constant(np.append(factors, np.float32(1))[where])
            else:
                scales = op.Gather(op.Concat(scales, np.ones(1, np.float32), axis=0), where, axis=0)
        if sizes is not None:
            given = op.Concat(sizes, op.Shape(X), axis=0)
            sizes = op.Gather(given, np.where(where < len(axes), where, np.arange(rank) + len(axes)), axis=0)
    return op.Resize(X, roi, scales, sizes, **attrs)


@down("Resize", to=12)
def resize_all_inputs(op, X, roi=None, scales=None, sizes=None, **attrs):
    """`roi` and `scales` are required, but may be empty."""
    empty = np.zeros(0, np.float32)
    return op.Resize(X, empty if roi is None else roi, empty if scales is None else scales, sizes, **attrs)


def _scale(size, resized):
    """The scale of an axis, float32, whose product with the size is not below the resized size, where that is possible.

    Runtimes round the product to float32 before they take its floor, onnx's shape inference does not.
    """
    scale = np.float32(resized) / np.float32(size)
    return float(np.nextafter(scale, np.float32(np.inf)) if _rounds_down(size, resized) else scale)


def _rounds_down(size, resized):
    return size * float(np.float32(resized) / np.float32(size)) < resized


def _coincide(size, resized):
    """Whether points of a larger axis coincide with elements while its scale is rounded down: with the larger scale of `_scale`,
    nearest would take the element before."""
    return resized > size and math.gcd(size, resized) > 1 and _rounds_down(size, resized)


@down("Resize", to=10)
def resize_scales(
    op, X, roi: Array | None = None, scales: Floats | None = None, sizes: Ints | None = None, *,
    coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0,
    mode="nearest", nearest_mode="round_prefer_floor",
):  # fmt: skip
    if not scales:
        before = fixed_shape(X)
        if mode == "nearest" and coordinate_transformation_mode == "asymmetric" and nearest_mode == "floor":
            for axis, (size, resized) in enumerate(zip(before, sizes, strict=True)):
                if _coincide(size, resized):
                    X = op.Gather(X, np.arange(resized) * size // resized, axis=axis)
            before = [s if _coincide(b, s) else b for b, s in zip(before, sizes, strict=True)]
        scales = [_scale(b, s) for b, s in zip(before, sizes, strict=True)]
        if [int(np.floor(b * np.float32(s))) for b, s in zip(before, scales, strict=True)] != list(sizes):
            raise Unsupported("opset 11 added sizes, and no scale gives these sizes")
    whole = all(s == int(s) for s in scales)
    if mode == "nearest":
        rounding = "floor" if all(s >= 1 for s in scales) else "ceil" if all(s <= 1 for s in scales) else ""
        same = coordinate_transformation_mode == "asymmetric" and nearest_mode == rounding
        # an integer factor repeats each pixel, whatever the coordinate transformation and rounding, if there are no ties
        grows = whole and min(scales) >= 1
        repeats = grows and coordinate_transformation_mode == "half_pixel" and nearest_mode.startswith("round")
        if not same and not repeats:
            raise Unsupported(f"opset 11 added {coordinate_transformation_mode=!s} with {nearest_mode=!s}")
    elif (mode != "linear" or coordinate_transformation_mode != "asymmetric") and any(s != 1 for s in scales):
        raise Unsupported(f"opset 11 added {mode=!s} with {coordinate_transformation_mode=!s}")
    return op.Resize(X, np.array(scales, np.float32), mode=mode)


@down("Resize", to=9)
def resize_to_upsample(op, X, scales: Floats, *, mode="nearest"):
    if any(s < 1 for s in scales):
        raise Unsupported("opset 10 added scales below 1")
    return op.Upsample(X, np.array(scales, np.float32), mode=mode)


@down("Upsample", to=8)
def upsample_scales(op, X, scales: Floats, *, mode="nearest"):
    return op.Upsample(X, scales=scales, mode=mode)


_GRID_MODES = {"bilinear": "linear", "bicubic": "cubic"}


@up("GridSample", to=20)
def grid_sample(op, X, grid, *, align_corners=0, mode="bilinear", padding_mode="zeros"):
    return op.GridSample(X, grid, align_corners=align_corners, mode=_GRID_MODES.get(mode, mode), padding_mode=padding_mode)


@down("GridSample", to=19)
def grid_sample_2d(op, X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    if rank_of(X) != 4:
        raise Unsupported("opset 20 added volumes")
    names = {new: old for old, new in _GRID_MODES.items()}
    return op.GridSample(X, grid, align_corners=align_corners, mode=names.get(mode, mode), padding_mode=padding_mode)


@up("RoiAlign", to=16)
def roi_align(op, X, rois, batch_indices, **attrs):
    return op.RoiAlign(X, rois, batch_indices, coordinate_transformation_mode="output_half_pixel", **attrs)


@down("RoiAlign", to=15)
def roi_align_corners(op, X, rois, batch_indices, *, coordinate_transformation_mode="half_pixel", **attrs):
    if coordinate_transformation_mode == "half_pixel":
        raise Unsupported("opset 16 added coordinate_transformation_mode='half_pixel'")
    return op.RoiAlign(X, rois, batch_indices, **attrs)
