"""Pooling."""

from onnxbridge.frontends.tensorflow.channels_last import first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.padding import window
from onnxbridge.rules import Ints


def _pool(op, kind, x, ksize, strides, padding, explicit, data_format, **attrs):
    x = first(op, x, data_format)
    kernel = spatial(ksize, data_format)
    attrs |= window(x, kernel, spatial(strides, data_format), [1] * len(kernel), padding, explicit, data_format)
    return last(op, op.call(kind, x, kernel_shape=list(kernel), **attrs), data_format)


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
