"""Image operators: resize, crop and warp the last two axes."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Float, Int, Ints, Str
from onnxbridge.runtime.executor.numpy.kernels import resize as kernels
from onnxbridge.runtime.mil.ops import rule


def _sample_positions(first, size, count, mode):
    """The positions of `count` samples on an axis of `size` elements that starts at `first`, before clamping."""
    steps = np.arange(count)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if count == 1:
            return first + (steps if mode == "STRICT_ALIGN_CORNERS" else steps + (size - 1) / 2)
        return first + steps * ((size - 1) / (count - 1))
    if mode == "DEFAULT":
        return first + steps * (size / count)
    if mode == "OFFSET_CORNERS":
        return first + (steps + 0.5) * (max(1, size - 1) / count)
    if mode == "UNALIGN_CORNERS":
        return first + (steps + 0.5) * (size / count) - 0.5
    raise Unsupported(f"sampling_mode {mode}")


def _linear(x, sizes, mode):
    """Resize the last axes by linear interpolation, one axis after the other."""
    dtype = x.dtype
    y = x.astype(np.float32) if dtype.kind in "iu" else x
    for axis, count in enumerate(sizes, x.ndim - len(sizes)):
        points = np.clip(_sample_positions(0, x.shape[axis], count, mode), 0, x.shape[axis] - 1)
        y = kernels.linear(y, axis, points)
    return y.astype(dtype)


def _nearest(x, sizes):
    """The element at the center of each new one: TensorFlow's ResizeNearestNeighbor with half_pixel_centers, which Apple's
    converter lowers to this operator."""
    for axis, count in enumerate(sizes, x.ndim - len(sizes)):
        x = np.take(x, (2 * np.arange(count) + 1) * x.shape[axis] // (2 * count), axis)
    return x


def _scaled_sizes(x, height, width):
    """The new sizes, computed in float32, so that inexact scales do not lose a row to rounding."""
    return [int(np.floor(np.float32(n) * np.float32(s))) for n, s in zip(x.shape[-2:], (height, width), strict=True)]


@rule("upsample_nearest_neighbor")
def upsample_nearest_neighbor(x, scale_factor_height: Float = 1, scale_factor_width: Float = 1):
    """The element at the start of each new one."""
    for axis, count in zip((-2, -1), _scaled_sizes(x, scale_factor_height, scale_factor_width), strict=True):
        x = np.take(x, np.arange(count) * x.shape[axis] // count, axis)
    return x


@rule("resize_nearest_neighbor")
def resize_nearest_neighbor(x, target_size_height: Int, target_size_width: Int):
    return _nearest(x, (target_size_height, target_size_width))


@rule("upsample_bilinear")
def upsample_bilinear(
    x,
    scale_factor_height: Float = 1,
    scale_factor_width: Float = 1,
    align_corners: Bool = True,
    half_pixel_centers: Bool | None = None,
):
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    if align_corners and half:
        raise Unsupported("align_corners together with half_pixel_centers")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    return _linear(x, _scaled_sizes(x, scale_factor_height, scale_factor_width), mode)


@rule("resize_bilinear")
def resize_bilinear(x, target_size_height: Int = 1, target_size_width: Int = 1, sampling_mode: Str = "DEFAULT"):
    return _linear(x, (target_size_height, target_size_width), sampling_mode)


@rule("resize", limits="nearest neighbor with the sampling mode DEFAULT only")
def resize(x, shape: Ints, resized_dims: Int, interpolation_mode: Str = "LINEAR", sampling_mode: Str = "DEFAULT"):
    new_sizes = shape[len(shape) - resized_dims :]
    sizes = [n or old for n, old in zip(new_sizes, x.shape[x.ndim - resized_dims :], strict=True)]
    if interpolation_mode == "LINEAR":
        return _linear(x, sizes, sampling_mode)
    if interpolation_mode != "NEAREST_NEIGHBOR" or sampling_mode != "DEFAULT":
        raise Unsupported(f"{interpolation_mode} with {sampling_mode}: MIL does not document its rounding")
    return _nearest(x, sizes)


@rule("crop", kind="move")
def crop(x, crop_height: Ints, crop_width: Ints):
    height, width = x.shape[-2:]
    return x[..., crop_height[0] : height - crop_height[1], crop_width[0] : width - crop_width[1]]


def _corners(boxes, mode):
    """(top, left, bottom, right) of boxes (N, 4)."""
    if mode.endswith("WIDTH_FIRST"):
        boxes = boxes[:, [1, 0, 3, 2]]
    if mode.startswith("CENTER_SIZE"):
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    return boxes


CORNER_TOLERANCE = 1e-3
"""How far, in pixels, rounding may move a corner outside of the image."""


@rule("crop_resize")
def crop_resize(
    x,
    roi=None,
    boxes=None,
    box_indices: Ints | None = None,
    target_height: Int = 1,
    target_width: Int = 1,
    normalized_coordinates: Bool = False,
    spatial_scale: Float = 1.0,
    box_coordinate_mode: Str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: Str = "DEFAULT",
    pad_value: Float | None = None,
):
    """From iOS17 on, `boxes` with an image index each; before, `roi`, whose boxes without an index are cropped from every image.

    Samples outside of the image are `pad_value`; before iOS16, which lacks it, boxes must lie inside.
    """
    if boxes is None:
        flat = roi.reshape(roi.shape[0], -1)
        boxes = flat[:, -4:]
        box_indices = flat[:, 0].astype(int) if flat.shape[1] == 5 else None
        images = [x if box_indices is None else x[[i]] for i in (box_indices if box_indices is not None else range(len(flat)))]
    else:
        box_indices = range(len(boxes)) if box_indices is None else box_indices
        images = [x[[i]] for i in box_indices]
    size = np.array(x.shape[-2:])
    corners = _corners(np.asarray(boxes, np.float64), box_coordinate_mode) * spatial_scale
    if normalized_coordinates:
        corners = corners * np.tile(size - 1, 2)
    if pad_value is None and ((corners < -CORNER_TOLERANCE) | (corners > np.tile(size - 1, 2) + CORNER_TOLERANCE)).any():
        raise Unsupported("a box that exceeds the image, before iOS16")
    if "ALIGN_CORNERS" not in sampling_mode.replace("UNALIGN", "") and (corners[:, 2:] < corners[:, :2]).any():
        raise Unsupported(f"{sampling_mode} with a box whose end is before its start")
    crops = []
    for image, (top, left, bottom, right) in zip(images, corners, strict=True):
        rows = _sample_positions(top, bottom - top + 1, target_height, sampling_mode)
        columns = _sample_positions(left, right - left + 1, target_width, sampling_mode)
        inside = np.logical_and.outer(
            *((points >= 0) & (points <= n - 1) for points, n in zip((rows, columns), size, strict=True))
        )
        crop = kernels.linear(image, -2, np.clip(rows, 0, size[0] - 1))
        crop = kernels.linear(crop, -1, np.clip(columns, 0, size[1] - 1))
        crops.append(crop if pad_value is None else np.where(inside, crop, np.float32(pad_value)))
    return np.concatenate(crops) if roi is None else np.stack(crops)


PADDING = ("constant", "border", "reflection", "symmetric")


@rule("resample")
def resample(
    x, coordinates, sampling_mode: Str, padding_mode: Str, padding_value: Float, coordinates_mode: Str, align_corners: Bool
):
    if padding_mode not in PADDING or sampling_mode not in ("bilinear", "nearest"):
        raise Unsupported(f"{sampling_mode} with {padding_mode}")
    points = coordinates.astype(np.float32)
    xs, ys = (_to_pixels(points[..., i], n, coordinates_mode, align_corners) for i, n in ((0, x.shape[3]), (1, x.shape[2])))
    return kernels.sample(x, xs, ys, mode=sampling_mode, padding=padding_mode, value=padding_value)


def _to_pixels(points, size, mode, align_corners):
    """Convert coordinates to pixels."""
    if mode == "unnormalized":
        return points
    if mode == "normalized_minus_one_to_one":
        points = (points + 1) / 2
    elif mode != "normalized_zero_to_one":
        raise Unsupported(f"coordinates_mode {mode}")
    return points * (size - 1) if align_corners else points * size - 0.5


@rule("affine")
def affine(
    x,
    transform_matrix,
    output_height: Int,
    output_width: Int,
    sampling_mode: Str,
    padding_mode: Str,
    padding_value: Float,
    coordinates_mode: Str,
    align_corners: Bool,
):
    """Sample at the positions that the matrix maps each output pixel to, in the coordinates of the mode."""
    low, high = {"normalized_minus_one_to_one": (-1, 1), "normalized_zero_to_one": (0, 1)}.get(coordinates_mode, (0, None))
    axes = []
    for n in (output_width, output_height):
        span = n - 1 if high is None else high - low
        step = span / max(1, n - 1) if align_corners or high is None else span / n
        axes.append(low + (0 if align_corners or high is None else step / 2) + np.arange(n) * step)
    across, down = np.meshgrid(*axes)
    matrices = np.broadcast_to(transform_matrix.astype(np.float64), (x.shape[0], 6)).reshape(-1, 2, 3)
    grid = np.einsum("nij,jhw->nhwi", matrices, np.stack([across, down, np.ones_like(across)]))
    return resample(x, grid, sampling_mode, padding_mode, padding_value, coordinates_mode, align_corners)
