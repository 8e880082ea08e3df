"""Resizing of images."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.layout import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub import fold


def _resize(op, images, size, align_corners, half_pixel_centers, mode, **attrs):
    x = first(op, images, "NHWC")
    where = "align_corners" if align_corners else "half_pixel" if half_pixel_centers else "asymmetric"
    sizes = fold.sizes(size) or [None, None]
    if align_corners and any(w in (1, None) and g != 1 for w, g in zip(sizes, list(x.shape)[2:], strict=True)):
        raise Unsupported("align_corners with a result of one pixel, or of a size that is not known")
    wanted = [op.Gather(size, np.array(i)) if s is None else s for i, s in enumerate(sizes)]
    target = op.dims([op.size(x, 0), op.size(x, 1), *wanted])
    return last(op, op.Resize(x, None, None, target, mode=mode, coordinate_transformation_mode=where, **attrs), "NHWC")


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

