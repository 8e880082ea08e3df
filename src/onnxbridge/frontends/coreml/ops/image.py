"""Image operators: resize and crop the last two axes."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, is_integer, like, rank, static_shape
from onnxbridge.rules import Bool, Float, Int, Ints, Str

ALIGN_CORNERS_MODES = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS")
# The coordinate_transformation_mode of ONNX that is equivalent to MIL's sampling mode.
TRANSFORMATIONS = {
    "STRICT_ALIGN_CORNERS": "align_corners", "ALIGN_CORNERS": "align_corners", "DEFAULT": "asymmetric",
    "UNALIGN_CORNERS": "half_pixel",
}  # fmt: skip


def sample_positions(first, size, count, mode, maximum=np.maximum):
    """The positions of `count` samples on an axis of `size` elements that starts at `first`."""
    steps = np.arange(count, dtype=np.float32)
    if mode in ALIGN_CORNERS_MODES and count == 1:
        return first + (0 * size if mode == "STRICT_ALIGN_CORNERS" else (size - 1) / 2) + steps
    if mode in ALIGN_CORNERS_MODES:
        return first + steps * ((size - 1) / (count - 1))
    if mode == "DEFAULT":
        return first + steps * (size / count)
    if mode == "OFFSET_CORNERS":
        return first + (steps + 0.5) * (maximum(1, size - 1) / count)
    if mode == "UNALIGN_CORNERS":
        return first + (steps + 0.5) * (size / count) - 0.5
    raise Unsupported(f"sampling_mode {mode}")


def _matrix(size, count, mode, dtype):
    """The interpolation matrix (count, size) of an axis."""
    positions = np.clip(sample_positions(0.0, size, count, mode), 0, size - 1)
    low = np.minimum(np.floor(positions).astype(int), max(0, size - 2))
    weights = np.zeros((count, size), dtype)
    weights[np.arange(count), low] = 1 - (positions - low)
    if size > 1:
        weights[np.arange(count), low + 1] = positions - low
    return weights


def _linear(op, x, new_sizes, mode):
    """Resize the last axes by linear interpolation."""
    if is_integer(x):
        return like(op, _linear(op, op.Cast(x, to=ir.DataType.FLOAT), new_sizes, mode), x)
    other_sizes = [op.size(x, a) for a in range(rank(x) - len(new_sizes))]
    has_single = any(n == 1 for n in new_sizes)
    if mode in TRANSFORMATIONS and not (mode == "ALIGN_CORNERS" and has_single):
        return op.Resize(
            x, None, None, op.dims([*other_sizes, *new_sizes]), mode="linear",
            coordinate_transformation_mode=TRANSFORMATIONS[mode],
        )  # fmt: skip
    sizes = static_shape(x, range(rank(x) - len(new_sizes), rank(x)))
    if len(new_sizes) != 2 or not all(isinstance(n, int) for n in new_sizes):
        raise Unsupported(f"sampling_mode {mode} with dynamic sizes")
    rows, columns = (_matrix(n, c, mode, x.dtype.numpy()) for n, c in zip(sizes, new_sizes, strict=True))
    return op.MatMul(op.MatMul(rows, x), np.ascontiguousarray(columns.T))


def _nearest(op, x, new_sizes, *, centered):
    """The element at the start or, if `centered`, at the center of each new one."""
    axes = range(rank(x) - len(new_sizes), rank(x))
    if all(isinstance(x.shape[a], int) and isinstance(n, int) for a, n in zip(axes, new_sizes, strict=True)) and any(
        n % x.shape[a] for a, n in zip(axes, new_sizes, strict=True)
    ):  # ONNX's coordinates are rounded, and may select the adjacent element
        for axis, n in zip(axes, new_sizes, strict=True):
            steps = (2 * np.arange(n) + 1) * x.shape[axis] // (2 * n) if centered else np.arange(n) * x.shape[axis] // n
            x = op.Gather(x, steps, axis=axis)
        return x
    sizes = op.dims([*(op.size(x, a) for a in range(rank(x) - len(new_sizes))), *new_sizes])
    if centered:
        return op.Resize(
            x, None, None, sizes, mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
        )
    return op.Resize(x, None, None, sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _scaled_sizes(op, x, scales):
    """The last two sizes after scaling, computed in float32, so that inexact scales do not lose a row to rounding."""
    found = []
    for axis, scale in zip((-2, -1), scales, strict=True):
        n = op.size(x, axis)
        if isinstance(n, int):
            found.append(int(np.floor(np.float32(n) * np.float32(scale))))
        else:
            found.append(op.Cast(op.Floor(op.Mul(op.Cast(n, to=ir.DataType.FLOAT), scale)), to=ir.DataType.INT64))
    return found


@rule("upsample_nearest_neighbor")
def upsample_nearest_neighbor(op, x, scale_factor_height: Float = 1, scale_factor_width: Float = 1):
    return _nearest(op, x, _scaled_sizes(op, x, (scale_factor_height, scale_factor_width)), centered=False)


@rule("resize_nearest_neighbor")
def resize_nearest_neighbor(op, x, target_size_height: Int, target_size_width: Int):
    return _nearest(op, x, [target_size_height, target_size_width], centered=True)


@rule("upsample_bilinear")
def upsample_bilinear(
    op, x, scale_factor_height: Float = 1, scale_factor_width: Float = 1, align_corners: Bool = True,
    half_pixel_centers: Bool | None = None,
):  # fmt: skip
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    if align_corners and half:
        raise Unsupported("align_corners together with half_pixel_centers")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear(op, x, _scaled_sizes(op, x, (scale_factor_height, scale_factor_width)), mode)


@rule("resize_bilinear")
def resize_bilinear(op, x, target_size_height: Int = 1, target_size_width: Int = 1, sampling_mode: Str = "DEFAULT"):
    return _linear(op, x, [target_size_height, target_size_width], sampling_mode)


@rule("resize", limits="nearest neighbor with the sampling mode DEFAULT only")
def resize(op, x, shape, resized_dims: Int, interpolation_mode: Str = "LINEAR", sampling_mode: Str = "DEFAULT"):
    requested = _sizes(op, shape)[-resized_dims:]
    new_sizes = [op.size(x, rank(x) - resized_dims + i) if n == 0 else n for i, n in enumerate(requested)]
    if interpolation_mode == "LINEAR":
        return _linear(op, x, new_sizes, sampling_mode)
    if interpolation_mode != "NEAREST_NEIGHBOR" or sampling_mode != "DEFAULT":
        raise Unsupported(f"{interpolation_mode} with {sampling_mode}: MIL does not document its rounding")
    return _nearest(op, x, new_sizes, centered=True)


def _sizes(op, shape):
    """The elements of a shape: integers if it is constant."""
    if shape.const_value is not None:
        return [int(n) for n in shape.const_value.numpy().reshape(-1)]
    (count,) = static_shape(shape)
    return [op.Gather(cast(op, shape, ir.DataType.INT64), i, axis=0) for i in range(count)]


@rule("crop")
def crop(op, x, crop_height: Ints, crop_width: Ints):
    return op.Pad(x, [-crop_height[0], -crop_width[0], -crop_height[1], -crop_width[1]], None, [-2, -1])
