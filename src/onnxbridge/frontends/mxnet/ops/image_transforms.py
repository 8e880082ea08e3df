"""`mx.nd.image`: images as (height, width, channels) or in batches; random ones are for training and have no rule."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.shape import FIRST, LAST
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.ir.values import like, rank, static_shape

FLOAT, UINT8 = ir.DataType.FLOAT, ir.DataType.UINT8
# the principal components of the colors in ImageNet, times their deviations
LIGHTING = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]], np.float32) * np.array(
    [55.46, 4.794, 1.148], np.float32
)


def _channels_first(op, data):
    count = rank(data)
    return op.Transpose(data, perm=[*range(count - 3), count - 1, count - 3, count - 2])


def _channels_last(op, data):
    count = rank(data)
    return op.Transpose(data, perm=[*range(count - 3), count - 2, count - 1, count - 3])


@rule("_image_to_tensor")
def image_to_tensor(op, data):
    """Channels first, from 0..255 to 0..1."""
    return op.Div(op.Cast(_channels_first(op, data), to=FLOAT), 255.0)


@rule("_image_normalize")
def image_normalize(op, data, *, mean=(0, 0, 0, 0), std=(1, 1, 1, 1)):
    """Of images with channels first."""
    (channels,) = static_shape(data, [-3])

    def column(values):
        values = list(as_tuple(values))
        values = values * channels if len(values) == 1 else values[:channels]
        return np.array(values, data.dtype.numpy()).reshape(-1, 1, 1)

    return op.Div(op.Sub(data, column(mean)), column(std))


@rule("_image_crop")
def image_crop(op, data, *, x, y, width, height):
    return op.Slice(data, [y, x], [y + height, x + width], [-3, -2])


@rule("_image_flip_left_right")
def image_flip_left_right(op, data):
    return op.Slice(data, [LAST], [FIRST], [-2], [-1])


@rule("_image_flip_top_bottom")
def image_flip_top_bottom(op, data):
    return op.Slice(data, [LAST], [FIRST], [-3], [-1])


@rule("_image_adjust_lighting")
def image_adjust_lighting(op, data, *, alpha):
    """Adds a multiple of the principal components of colors; of uint8, within its range and truncated."""
    shift = LIGHTING @ np.array(as_tuple(alpha), np.float32)
    if data.dtype != UINT8:
        return op.Add(data, shift)
    return op.Cast(op.Clip(op.Add(op.Cast(data, to=FLOAT), shift), 0.0, 255.0), to=UINT8)


@rule("_image_resize", limits="nearest and bilinear; uint8 may differ by 1 from OpenCV's fixed-point arithmetic")
def image_resize(op, data, *, size=(), keep_ratio=False, interp=1):
    """The size is (width, height), or that of the shorter side with `keep_ratio`."""
    if interp not in (0, 1):
        raise Unsupported(f"interp={interp} is not supported", hint="use 0 (nearest) or 1 (bilinear)")
    tall, wide = static_shape(data, [-3, -2])
    size = as_tuple(size)
    width, height = size if len(size) == 2 else (size[0], size[0])
    if keep_ratio and len(size) == 1:
        width, height = (int(size[0] * wide / tall), size[0]) if tall < wide else (size[0], int(size[0] * tall / wide))
    batched = _channels_first(op, data if rank(data) == 4 else op.Unsqueeze(data, [0]))
    narrow = not data.dtype.is_floating_point()
    batched = op.Cast(batched, to=FLOAT) if narrow else batched
    dims = op.Concat(op.Shape(batched, end=2), np.array([height, width]), axis=0)
    if interp == 0:  # OpenCV takes the floor of the position without half a pixel
        modes = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        y = op.Resize(batched, None, None, dims, mode="nearest", **modes)
    else:
        y = op.Resize(batched, None, None, dims, mode="linear", coordinate_transformation_mode="half_pixel")
    y = like(op, op.Round(y), data) if narrow else y
    y = _channels_last(op, y)
    return y if rank(data) == 4 else op.Squeeze(y, [0])
