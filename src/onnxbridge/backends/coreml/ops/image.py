"""Image resizing and sampling."""

import math

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import NARROW, cast, hub_dtype, is_float, like
from onnxbridge.backends.coreml.legalize import const_or_var as e
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import fixed
from onnxbridge.errors import Unsupported

SAMPLING = {"half_pixel": "UNALIGN_CORNERS", "align_corners": "STRICT_ALIGN_CORNERS", "asymmetric": "DEFAULT"}


@rule("Resize", limits="dynamic sizes with integer factors only; antialias needs constant scales")
def resize(
    X, roi=None, scales=None, sizes=None, *, antialias=0, axes=None, coordinate_transformation_mode="half_pixel",
    cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, keep_aspect_ratio_policy="stretch", mode="nearest",
    nearest_mode="round_prefer_floor",
):  # fmt: skip
    """MIL's resize or upsample operators where they are equivalent; else separable interpolation, axis by axis."""
    axes = [a % X.rank for a in (range(X.rank) if axes is None else axes)]
    transform = coordinate_transformation_mode
    if not fixed(X, axes):
        return _dynamic_upsample(X, scales, axes, transform, mode, nearest_mode)
    if antialias and mode != "nearest" and (scales is not None and scales.val is None):
        raise Unsupported("antialias with dynamic scales")
    factors, counts = _factors(X, axes, scales, sizes, keep_aspect_ratio_policy)
    native = _native_resize(X, axes, factors, counts, transform, mode, nearest_mode, antialias)
    if native is not None:
        return native
    region = roi if roi is None or roi.val is None else np.asarray(roi.val, np.float64)
    y = X if mode == "nearest" or is_float(X) else cast(X, types.fp32)
    y = cast(y, types.int32) if y.dtype == types.bool else y
    outside = None
    for i, (axis, factor, n) in enumerate(zip(axes, factors, counts, strict=True)):
        length = int(X.shape[axis])
        if e.known(factor, n) and n == length and factor == 1 and transform != "tf_crop_and_resize":
            continue
        positions = _source_positions(n, length, factor, transform, _crop_bounds(region, i, len(axes)))
        if transform == "tf_crop_and_resize":
            outside_axis = e.along(e.logical_or(e.less(positions, 0.0), e.greater(positions, length - 1.0)), axis, X.rank)
            outside = outside_axis if outside is None else e.logical_or(outside, outside_axis)
        if mode == "nearest":
            y = mb.gather(x=y, indices=_clamped_index(ROUNDING[nearest_mode](positions), length), axis=axis)
        else:
            shrink = min(float(factor), 1.0) if antialias else 1.0
            y = _weighted_sum(y, axis, length, _taps(positions, mode, shrink, cubic_coeff_a), exclude_outside)
    if outside is not None:
        y = e.where(outside, extrapolation_value, y)
    return _cast_like(y, X)


def _cast_like(y, x):
    """Cast to the dtype of `x`: integers are truncated, and clamped since cubic interpolation may overshoot."""
    if is_float(y) and not is_float(x):
        kind = hub_dtype(x)
        if kind in NARROW:
            bits, signed = NARROW[kind]
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            y = mb.minimum(x=mb.maximum(x=y, y=like(y, low)), y=like(y, high))
    return cast(y, x.dtype)


def _factors(X, axes, scales, sizes, policy):
    """The factor and the new size of each axis: numbers, or MIL values if the scales are dynamic."""
    lengths = [int(X.shape[a]) for a in axes]
    if scales is not None and scales.rank == 1 and scales.shape[0] != 0:
        if scales.val is not None:
            factors = [float(s) for s in np.asarray(scales.val)]
            return factors, [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(lengths, factors, strict=True)]
        factors = [mb.slice_by_index(x=scales, begin=[i], end=[i + 1], squeeze_mask=[True]) for i in range(len(axes))]
        return factors, [e.to_int32(e.floor(e.mul(f, float(n)))) for n, f in zip(lengths, factors, strict=True)]
    if sizes is None or sizes.val is None:
        raise Unsupported("dynamic sizes", "make them a constant, or give the input a fixed shape")
    target_sizes = [int(n) for n in np.asarray(sizes.val)]
    ratios = [w / n for w, n in zip(target_sizes, lengths, strict=True)]
    if policy == "stretch":
        return ratios, target_sizes
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [one] * len(lengths), [math.floor(one * n + 0.5) for n in lengths]


def _native_resize(X, axes, factors, counts, transform, mode, nearest_mode, antialias):
    """MIL's resize or upsample operator for the last two axes of four, None if none is equivalent."""
    if X.rank != 4 or not is_float(X) or antialias or not e.known(*factors, *counts):
        return None
    full = dict(zip(axes, zip(factors, counts, strict=True), strict=True))
    changed = {a: (f, n) for a, (f, n) in full.items() if n != X.shape[a] or f != 1}
    if not changed or any(a < 2 for a in changed):
        return None
    height, width = (changed.get(a, (1.0, int(X.shape[a]))) for a in (2, 3))
    blocks = all(f == int(f) and n == int(f) * X.shape[a] for a, (f, n) in ((2, height), (3, width)))
    if mode == "nearest" and blocks and _is_repeat(transform, nearest_mode):
        return mb.upsample_nearest_neighbor(x=X, scale_factor_height=int(height[0]), scale_factor_width=int(width[0]))
    exact = all(abs(f * X.shape[a] - n) < 1e-6 for a, (f, n) in ((2, height), (3, width)))
    if mode == "linear" and exact and min(height[1], width[1]) > 1 and transform in (*SAMPLING, "pytorch_half_pixel"):
        sampling = SAMPLING.get(transform, "UNALIGN_CORNERS")
        return mb.resize_bilinear(x=X, target_size_height=height[1], target_size_width=width[1], sampling_mode=sampling)
    return None


def _dynamic_upsample(X, scales, axes, transform, mode, nearest_mode):
    """Upsample dynamic heights and widths by integer factors."""
    factors = None if scales is None or scales.val is None else dict(zip(axes, np.asarray(scales.val).tolist(), strict=True))
    if factors is None or X.rank != 4 or any(factors.get(a, 1) != 1 for a in (0, 1)) or not is_float(X):
        raise Unsupported("a dynamic size", "give the input a fixed shape")
    height, width = factors.get(2, 1), factors.get(3, 1)
    if height != int(height) or width != int(width):
        raise Unsupported("a dynamic size with a factor that is not an integer", "give the input a fixed shape")
    if mode == "nearest" and _is_repeat(transform, nearest_mode):
        return mb.upsample_nearest_neighbor(x=X, scale_factor_height=int(height), scale_factor_width=int(width))
    if mode == "linear" and transform in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        aligned = transform == "align_corners"
        half = transform.endswith("half_pixel")
        return mb.upsample_bilinear(
            x=X,
            scale_factor_height=float(height),
            scale_factor_width=float(width),
            align_corners=aligned,
            half_pixel_centers=half,
        )
    raise Unsupported(f"{mode} with {transform} and a dynamic size", "give the input a fixed shape")


def _is_repeat(transform, nearest_mode):
    """Whether nearest resizing by an integer factor repeats every element."""
    if transform == "asymmetric":
        return nearest_mode == "floor"
    return transform in ("half_pixel", "pytorch_half_pixel") and nearest_mode.startswith("round")


def _crop_bounds(roi, i, count):
    if roi is None:
        return 0.0, 1.0
    if e.known(roi):
        return (float(roi[i]), float(roi[i + count])) if len(roi) else (0.0, 1.0)
    return tuple(mb.slice_by_index(x=roi, begin=[j], end=[j + 1], squeeze_mask=[True]) for j in (i, i + count))


def _source_positions(n, length, factor, transform, region):
    """The source position of each of n new elements, in an axis of `length` elements."""
    x = e.to_float(e.arange(n))
    output_length = e.mul(factor, float(length))
    if transform in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"):
        positions = e.sub(e.div(e.add(x, 0.5), factor), 0.5)
        if transform == "half_pixel_symmetric":
            return e.add(positions, e.mul(e.sub(1.0, e.div(e.to_float(n), output_length)), length / 2))
        if transform == "half_pixel":
            return positions
        if not e.known(n):
            return e.where(e.greater(e.to_float(n), 1.0), positions, 0.0)
        return positions if n > 1 else e.mul(x, 0.0)
    if transform == "align_corners":
        if e.known(output_length):
            return x * (length - 1) / (output_length - 1) if output_length != 1 else 0 * x
        return e.div(e.mul(x, length - 1.0), e.maximum(e.sub(output_length, 1.0), 1e-6))
    if transform == "asymmetric":
        return e.div(x, factor)
    if transform == "tf_crop_and_resize":
        start, end = region
        if e.known(n) and n == 1:
            return e.add(e.mul(x, 0.0), e.mul(e.add(start, end), 0.5 * (length - 1)))
        step = e.div(e.mul(e.sub(end, start), length - 1.0), e.sub(output_length, 1.0))
        return e.add(e.mul(x, step), e.mul(start, length - 1.0))
    raise Unsupported(f"coordinate_transformation_mode {transform!r}")


ROUNDING = {
    "round_prefer_floor": lambda p: e.ceil(e.sub(p, 0.5)),
    "round_prefer_ceil": lambda p: e.floor(e.add(p, 0.5)),
    "floor": e.floor,
    "ceil": e.ceil,
}


def _clamped_index(positions, length):
    return e.to_int32(e.minimum(e.maximum(positions, 0.0), length - 1.0))


def _cubic(distance, a):
    """The cubic convolution kernel (Keys)."""
    d = e.absolute(distance)
    near = e.add(e.mul(e.mul(e.sub(e.mul(d, a + 2.0), a + 3.0), d), d), 1.0)
    far = e.sub(e.mul(e.add(e.mul(e.sub(e.mul(d, a), 5.0 * a), d), 8.0 * a), d), 4.0 * a)
    return e.where(e.less_equal(d, 1.0), near, e.where(e.less(d, 2.0), far, 0.0))


def _taps(positions, mode, shrink, a):
    """The source indices and weights that each position is interpolated from; `shrink` < 1 widens the kernel."""
    if mode not in ("linear", "cubic"):
        raise Unsupported(f"mode {mode!r}")
    reach = math.ceil((1 if mode == "linear" else 2) / shrink)
    low = e.floor(positions)
    taps = []
    for i in range(1 - reach, 1 + reach):
        index = e.add(low, float(i))
        distance = e.mul(e.sub(index, positions), shrink)
        taps.append((index, e.maximum(e.sub(1.0, e.absolute(distance)), 0.0) if mode == "linear" else _cubic(distance, a)))
    return _normalized(taps) if shrink != 1 else taps


def _normalized(taps):
    """Normalize the weights to sum to one."""
    total = taps[0][1]
    for _, weight in taps[1:]:
        total = e.add(total, weight)
    return [(index, e.div(weight, total)) for index, weight in taps]


def _weighted_sum(x, axis, length, taps, exclude_outside):
    """The weighted sum along an axis. Indices outside are clamped, or have no weight with `exclude_outside`."""
    if exclude_outside:
        taps = _normalized([(p, e.where(e.logical_and(e.less(-1.0, p), e.less(p, float(length))), w, 0.0)) for p, w in taps])
    total = None
    for index, weight in taps:
        picked = mb.gather(x=x, indices=_clamped_index(index, length), axis=axis)
        weight = e.along(weight, axis, x.rank)
        part = mb.mul(x=picked, y=like(x, weight) if e.known(weight) else cast(weight, x.dtype))
        total = part if total is None else mb.add(x=total, y=part)
    return total


@rule("GridSample", limits="two spatial axes, linear or nearest")
def grid_sample(X, grid, *, align_corners=0, mode="linear", padding_mode="zeros"):
    if X.rank != 4 or mode not in ("linear", "nearest"):
        raise Unsupported(f"{mode} in {X.rank - 2} axes; Core ML samples two, linear or nearest")
    padding = {"zeros": "constant", "border": "border", "reflection": "reflection" if align_corners else "symmetric"}
    return mb.resample(
        x=X, coordinates=cast(grid, X.dtype), sampling_mode="bilinear" if mode == "linear" else "nearest",
        padding_mode=padding[padding_mode], padding_value=like(X, 0), coordinates_mode="normalized_minus_one_to_one",
        align_corners=bool(align_corners),
    )  # fmt: skip
