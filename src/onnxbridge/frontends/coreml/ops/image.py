"""Images: resizing, cropping and warping the last two axes."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, fixed, is_integer, like, rank
from onnxbridge.rules import Bool, Float, Int, Ints, Str

ALIGNED = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS")
# where ONNX takes its samples as MIL's modes do
TRANSFORMATIONS = {
    "STRICT_ALIGN_CORNERS": "align_corners", "ALIGN_CORNERS": "align_corners", "DEFAULT": "asymmetric",
    "UNALIGN_CORNERS": "half_pixel",
}  # fmt: skip


def points(first, size, count, mode, above=np.maximum):
    """Where `count` samples lie on an axis of `size` elements from `first` on; the numbers may be values of the builder's."""
    steps = np.arange(count, dtype=np.float32)
    if mode in ALIGNED and count == 1:
        return first + (0 * size if mode == "STRICT_ALIGN_CORNERS" else (size - 1) / 2) + steps
    if mode in ALIGNED:
        return first + steps * ((size - 1) / (count - 1))
    if mode == "DEFAULT":
        return first + steps * (size / count)
    if mode == "OFFSET_CORNERS":
        return first + (steps + 0.5) * (above(1, size - 1) / count)
    if mode == "UNALIGN_CORNERS":
        return first + (steps + 0.5) * (size / count) - 0.5
    raise Unsupported(f"sampling_mode {mode}")


def _matrix(size, count, mode, dtype):
    """The weights (count, size) with which an axis is interpolated."""
    at = np.clip(points(0.0, size, count, mode), 0, size - 1)
    low = np.minimum(np.floor(at).astype(int), max(0, size - 2))
    weights = np.zeros((count, size), dtype)
    weights[np.arange(count), low] = 1 - (at - low)
    if size > 1:
        weights[np.arange(count), low + 1] = at - low
    return weights


def _linear(op, x, wanted, mode):
    """The last two axes interpolated to new sizes."""
    if is_integer(x):
        return like(op, _linear(op, op.Cast(x, to=ir.DataType.FLOAT), wanted, mode), x)
    kept = [op.size(x, a) for a in range(rank(x) - len(wanted))]
    lone = any(n == 1 for n in wanted)
    if mode in TRANSFORMATIONS and not (mode == "ALIGN_CORNERS" and lone):
        return op.Resize(
            x, None, None, op.dims([*kept, *wanted]), mode="linear",
            coordinate_transformation_mode=TRANSFORMATIONS[mode],
        )  # fmt: skip
    sizes = fixed(x, range(rank(x) - len(wanted), rank(x)))
    if len(wanted) != 2 or not all(isinstance(n, int) for n in wanted):
        raise Unsupported(f"sampling_mode {mode} of sizes that are only known when the model runs")
    rows, columns = (_matrix(n, c, mode, x.dtype.numpy()) for n, c in zip(sizes, wanted, strict=True))
    return op.MatMul(op.MatMul(rows, x), np.ascontiguousarray(columns.T))


def _nearest(op, x, wanted, *, centred):
    """The element that each new one's front edge or, `centred`, its centre falls into."""
    axes = range(rank(x) - len(wanted), rank(x))
    if all(isinstance(x.shape[a], int) and isinstance(n, int) for a, n in zip(axes, wanted, strict=True)) and any(
        n % x.shape[a] for a, n in zip(axes, wanted, strict=True)
    ):  # ONNX's own coordinates are rounded, and may fall on the other side of an edge
        for axis, n in zip(axes, wanted, strict=True):
            steps = (2 * np.arange(n) + 1) * x.shape[axis] // (2 * n) if centred else np.arange(n) * x.shape[axis] // n
            x = op.Gather(x, steps, axis=axis)
        return x
    sizes = op.dims([*(op.size(x, a) for a in range(rank(x) - len(wanted))), *wanted])
    if centred:
        return op.Resize(
            x, None, None, sizes, mode="nearest", coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"
        )
    return op.Resize(x, None, None, sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def _scaled(op, x, scales):
    """The last two sizes after scaling; a scale that float32 cannot hold exactly must not lose a row to rounding."""
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
    return _nearest(op, x, _scaled(op, x, (scale_factor_height, scale_factor_width)), centred=False)


@rule("resize_nearest_neighbor")
def resize_nearest_neighbor(op, x, target_size_height: Int, target_size_width: Int):
    return _nearest(op, x, [target_size_height, target_size_width], centred=True)


@rule("upsample_bilinear")
def upsample_bilinear(
    op, x, scale_factor_height: Float = 1, scale_factor_width: Float = 1, align_corners: Bool = True,
    half_pixel_centers: Bool | None = None,
):  # fmt: skip
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    if align_corners and half:
        raise Unsupported("align_corners together with half_pixel_centers")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear(op, x, _scaled(op, x, (scale_factor_height, scale_factor_width)), mode)


@rule("resize_bilinear")
def resize_bilinear(op, x, target_size_height: Int = 1, target_size_width: Int = 1, sampling_mode: Str = "DEFAULT"):
    return _linear(op, x, [target_size_height, target_size_width], sampling_mode)


@rule("resize", limits="nearest neighbour with the sampling mode DEFAULT only")
def resize(op, x, shape, resized_dims: Int, interpolation_mode: Str = "LINEAR", sampling_mode: Str = "DEFAULT"):
    given = _sizes(op, shape)[-resized_dims:]
    wanted = [op.size(x, rank(x) - resized_dims + i) if n == 0 else n for i, n in enumerate(given)]
    if interpolation_mode == "LINEAR":
        return _linear(op, x, wanted, sampling_mode)
    if interpolation_mode != "NEAREST_NEIGHBOR" or sampling_mode != "DEFAULT":
        raise Unsupported(f"{interpolation_mode} with {sampling_mode}: MIL does not document where it rounds to")
    return _nearest(op, x, wanted, centred=True)


def _sizes(op, shape):
    """The elements of a shape: numbers where it is known."""
    if shape.const_value is not None:
        return [int(n) for n in shape.const_value.numpy().reshape(-1)]
    (count,) = fixed(shape)
    return [op.Gather(cast(op, shape, ir.DataType.INT64), i, axis=0) for i in range(count)]


@rule("crop")
def crop(op, x, crop_height: Ints, crop_width: Ints):
    return op.Pad(x, [-crop_height[0], -crop_width[0], -crop_height[1], -crop_width[1]], None, [-2, -1])
