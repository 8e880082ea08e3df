"""Pooling."""

from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.padding import window
from onnxbridge.frontends.tflite.ops import rule, windows
from onnxbridge.rules import Ints


def _pooled(op, kind, x, padding, stride_w, stride_h, filter_width, filter_height, **attrs):
    x, kernel = first(op, x, "NHWC"), [filter_height, filter_width]
    attrs |= window(x, kernel, [stride_h, stride_w], [1, 1], padding)
    return last(op, op.call(kind, x, kernel_shape=kernel, **attrs), "NHWC")


@rule("AVERAGE_POOL_2D")
def average_pool_2d(op, input, *, padding="SAME", stride_w=0, stride_h=0, filter_width=0, filter_height=0):
    return _pooled(op, "AveragePool", input, padding, stride_w, stride_h, filter_width, filter_height, count_include_pad=0)


@rule("MAX_POOL_2D", kind="move")
def max_pool_2d(op, input, *, padding="SAME", stride_w=0, stride_h=0, filter_width=0, filter_height=0):
    return _pooled(op, "MaxPool", input, padding, stride_w, stride_h, filter_width, filter_height)


@rule("L2_POOL_2D")
def l2_pool_2d(op, input, *, padding="SAME", stride_w=0, stride_h=0, filter_width=0, filter_height=0):
    squares = op.Mul(input, input)
    size = (padding, stride_w, stride_h, filter_width, filter_height)
    return op.Sqrt(_pooled(op, "AveragePool", squares, *size, count_include_pad=0))


@rule("REDUCE_WINDOW", kind="bits")
def reduce_window(
    op, input, init_value, window_shape: Ints, window_strides: Ints, window_dilations: Ints, *, reduce_function="UNSUPPORTED"
):
    """Kernels reduce quantized integers as they are stored."""
    return windows.reduced(op, input, init_value, reduce_function, window_shape, window_strides, window_dilations)
