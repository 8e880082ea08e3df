"""Pooling operators."""

from onnxbridge.rules import Bool, Ints, Str
from onnxbridge.runtime.executor.numpy.kernels import pooling as kernels
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.conv import padding


def _parameters(x, kernel_sizes, strides, pad_type, pad, ceil_mode):
    ones = (1,) * len(kernel_sizes)
    strides = strides or ones
    pads = padding(pad_type, pad, x.shape[2:], kernel_sizes, strides, ones)
    return {"strides": strides, "pads": pads, "dilations": ones, "ceil_mode": ceil_mode and not pad_type.startswith("same")}


@rule("max_pool")
def max_pool(x, kernel_sizes: Ints, pad_type: Str, strides: Ints | None = None, pad: Ints | None = None, ceil_mode: Bool = False):
    return kernels.max_pool(x, kernel_sizes, **_parameters(x, kernel_sizes, strides, pad_type, pad, ceil_mode))


@rule("avg_pool")
def avg_pool(
    x,
    kernel_sizes: Ints,
    pad_type: Str,
    strides: Ints | None = None,
    pad: Ints | None = None,
    exclude_padding_from_average: Bool = False,
    ceil_mode: Bool = False,
):
    parameters = _parameters(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return kernels.avg_pool(x, kernel_sizes, count_include_pad=not exclude_padding_from_average, **parameters)


@rule("l2_pool")
def l2_pool(x, kernel_sizes: Ints, pad_type: Str, strides: Ints | None = None, pad: Ints | None = None, ceil_mode: Bool = False):
    return kernels.lp_pool(x, kernel_sizes, **_parameters(x, kernel_sizes, strides, pad_type, pad, ceil_mode))
