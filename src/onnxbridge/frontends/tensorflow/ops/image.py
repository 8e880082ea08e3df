"""Resizing of images."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.layout import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.shape import int64
from onnxbridge.hub import fold


def _resize(op, images, size, align_corners, half_pixel_centers, mode, **attrs):
    x = first(op, images, "NHWC")
    where = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    known = fold.sizes(size)
    if known is not None and None not in known and all(isinstance(s, int) for s in list(x.shape)[1:]):
        given, wanted = list(x.shape)[2:], known
        if any(w == 1 and g != 1 for w, g in zip(wanted, given, strict=True)) and align_corners:
            raise Unsupported("align_corners with a result of one pixel")
    sizes = int64(op, size)
    y = op.Resize(x, None, None, sizes, axes=[2, 3], mode=mode, coordinate_transformation_mode=where, **attrs)
    return last(op, y, "NHWC")


@rule("ResizeNearestNeighbor")
def resize_nearest_neighbor(op, images, size, *, align_corners=False, half_pixel_centers=False):
    nearest = "round_prefer_ceil" if align_corners else "floor"
    if half_pixel_centers:
        return _nearest_half(op, images, size)
    return _resize(op, images, size, align_corners, False, "nearest", nearest_mode=nearest)


def _nearest_half(op, images, size):
    """TensorFlow takes floor((i + 0.5) * scale); ONNX's half_pixel subtracts another 0.5, so round up from there."""
    return _resize(op, images, size, False, True, "nearest", nearest_mode="round_prefer_ceil")


@rule("ResizeBilinear")
def resize_bilinear(op, images, size, *, align_corners=False, half_pixel_centers=False):
    y = images if images.dtype.name == "FLOAT" else op.Cast(images, to=np.float32)
    return _resize(op, y, size, align_corners, half_pixel_centers, "linear")


@rule("ResizeBicubic")
def resize_bicubic(op, images, size, *, align_corners=False, half_pixel_centers=False):
    y = images if images.dtype.name == "FLOAT" else op.Cast(images, to=np.float32)
    if half_pixel_centers:
        return _resize(op, y, size, align_corners, True, "cubic", cubic_coeff_a=-0.5, exclude_outside=1)
    return _resize(op, y, size, align_corners, False, "cubic", cubic_coeff_a=-0.75)
