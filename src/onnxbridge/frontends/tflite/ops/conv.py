"""Convolutions. Filters are [out, spatial..., in]; a constant filter is transposed to ONNX's layout once, at conversion."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import conv as tf
from onnxbridge.frontends.tensorflow.padding import window
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.ir.values import static_shape


def _convolved(op, x, weight, bias, strides, padding, dilations, data_format, group):
    x = first(op, x, data_format)
    kernel = static_shape(weight)[2:]
    attrs = window(x, kernel, strides, dilations, padding)
    return last(op, op.Conv(x, weight, bias, group=group, kernel_shape=kernel, **attrs), data_format)


def _groups(x, within):
    channels = x.shape[-1]
    if not isinstance(channels, int) or channels % within:
        raise Unsupported("an unknown number of input channels")
    return channels // within


@rule("CONV_2D")
def conv_2d(
    op, input, filter, bias=None, *, padding="SAME", stride_w=0, stride_h=0, dilation_w_factor=1, dilation_h_factor=1
):
    weight = op.Transpose(filter, perm=[0, 3, 1, 2])
    return _convolved(
        op, input, weight, bias, [stride_h, stride_w], padding, [dilation_h_factor, dilation_w_factor], "NHWC",
        _groups(input, static_shape(filter)[3]),
    )  # fmt: skip


@rule("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(
    op, input, filter, bias=None, *, padding="SAME", stride_w=0, stride_h=0, depth_multiplier=0, dilation_w_factor=1,
    dilation_h_factor=1,
):  # fmt: skip
    """The filter is [1, height, width, channels * multiplier]."""
    weight = op.Transpose(filter, perm=[3, 0, 1, 2])
    return _convolved(
        op, input, weight, bias, [stride_h, stride_w], padding, [dilation_h_factor, dilation_w_factor], "NHWC", _groups(input, 1)
    )


@rule("CONV_3D")
def conv_3d(
    op, input, filter, bias=None, *, padding="SAME", stride_d=0, stride_w=0, stride_h=0, dilation_d_factor=1,
    dilation_w_factor=1, dilation_h_factor=1,
):  # fmt: skip
    """The filter is [depth, height, width, in, out]."""
    dilations = [dilation_d_factor, dilation_h_factor, dilation_w_factor]
    weight = op.Transpose(filter, perm=[4, 3, 0, 1, 2])
    return _convolved(
        op, input, weight, bias, [stride_d, stride_h, stride_w], padding, dilations, "NDHWC",
        _groups(input, static_shape(filter)[3]),
    )  # fmt: skip


@rule("TRANSPOSE_CONV")
def transpose_conv(op, output_shape, weights, input, bias=None, *, padding="SAME", stride_w=0, stride_h=0):
    """The filter is [out, height, width, in]."""
    filter = op.Transpose(weights, perm=[1, 2, 0, 3])
    y = tf.conv2d_backprop_input(op, output_shape, filter, input, strides=(1, stride_h, stride_w, 1), padding=padding)
    return y if bias is None else op.Add(y, bias)


@rule("CONV_3D_TRANSPOSE")
def conv_3d_transpose(
    op, output_shape, filter, input, bias=None, *, padding="SAME", stride_d=0, stride_w=0, stride_h=0, dilation_d_factor=1,
    dilation_w_factor=1, dilation_h_factor=1,
):  # fmt: skip
    y = tf.conv3d_backprop_input_v2(
        op, output_shape, filter, input, strides=(1, stride_d, stride_h, stride_w, 1), padding=padding,
        dilations=(1, dilation_d_factor, dilation_h_factor, dilation_w_factor, 1),
    )  # fmt: skip
    return y if bias is None else op.Add(y, bias)
