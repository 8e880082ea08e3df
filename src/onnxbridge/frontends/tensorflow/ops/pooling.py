"""Pooling."""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.padding import window
from onnxbridge.hub.ir.values import cast
from onnxbridge.rules import Ints

D = ir.DataType
_KERNELS = (D.FLOAT, D.DOUBLE, D.FLOAT16, D.BFLOAT16, D.INT8, D.UINT8)


def _pool(op, kind, x, ksize, strides, padding, explicit, data_format, **attrs):
    narrow = x.dtype  # other integers up to 32 bits are exact in float64
    if narrow not in _KERNELS:
        if narrow.bitwidth > 32:
            raise Unsupported(f"pooling of {narrow.name}", "cast it to int32")
        x = op.Cast(x, to=D.DOUBLE)
    x = first(op, x, data_format)
    kernel = spatial(ksize, data_format)
    attrs |= window(x, kernel, spatial(strides, data_format), [1] * len(kernel), padding, explicit, data_format)
    return cast(op, last(op, op.call(kind, x, kernel_shape=list(kernel), **attrs), data_format), narrow)


@rule("MaxPool")
def max_pool(op, input, *, ksize, strides, padding, explicit_paddings=(), data_format="NHWC"):
    return _pool(op, "MaxPool", input, ksize, strides, padding, explicit_paddings, data_format)


@rule("MaxPoolV2")
def max_pool_v2(op, input, ksize: Ints, strides: Ints, *, padding, data_format="NHWC"):
    return _pool(op, "MaxPool", input, ksize, strides, padding, (), data_format)


@rule("MaxPool3D")
def max_pool_3d(op, input, *, ksize, strides, padding, data_format="NDHWC"):
    return _pool(op, "MaxPool", input, ksize, strides, padding, (), data_format)


@rule("AvgPool")
def avg_pool(op, value, *, ksize, strides, padding, data_format="NHWC"):
    return _pool(op, "AveragePool", value, ksize, strides, padding, (), data_format, count_include_pad=0)


@rule("AvgPool3D")
def avg_pool_3d(op, input, *, ksize, strides, padding, data_format="NDHWC"):
    return _pool(op, "AveragePool", input, ksize, strides, padding, (), data_format, count_include_pad=0)


@rule("MaxPoolWithArgmax")
def max_pool_with_argmax(op, input, *, ksize, strides, padding, Targmax=D.INT64, include_batch_in_index=False):
    """The indices of the maxima are those of an image with its channels last; ONNX counts through the batch, channels first."""
    x = first(op, input if input.dtype in _KERNELS else op.Cast(input, to=D.DOUBLE), "NHWC")
    kernel = spatial(ksize, "NHWC")
    attrs = window(x, kernel, spatial(strides, "NHWC"), [1, 1], padding)
    y, index = op.MaxPool(x, kernel_shape=list(kernel), outputs=2, **attrs)
    channels, height, width = (op.size(x, i) for i in (1, 2, 3))
    area = sizes.multiply(op, height, width)
    plane = op.Div(index, area)
    at = op.Add(op.Mul(op.Mod(index, area), channels), op.Mod(plane, channels))
    if include_batch_in_index:
        at = op.Add(at, op.Mul(op.Div(plane, channels), sizes.multiply(op, area, channels)))
    return cast(op, last(op, y, "NHWC"), input.dtype), cast(op, last(op, at, "NHWC"), Targmax)
