"""Pooling operators."""

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.frontends.coreml.padding import window
from onnxbridge.rules import Bool, Ints, Str


def _attributes(x, kernel_sizes, strides, pad_type, pad, ceil_mode):
    attributes = {"kernel_shape": kernel_sizes, **window(x, kernel_sizes, strides, None, pad_type, pad)}
    return attributes | {"ceil_mode": int(ceil_mode and not pad_type.startswith("same"))}


@rule("max_pool")
def max_pool(
    op, x, kernel_sizes: Ints, pad_type: Str, strides: Ints | None = None, pad: Ints | None = None, ceil_mode: Bool = False
):  # fmt: skip
    return op.MaxPool(x, **_attributes(x, kernel_sizes, strides, pad_type, pad, ceil_mode))


@rule("avg_pool")
def avg_pool(
    op, x, kernel_sizes: Ints, pad_type: Str, strides: Ints | None = None, pad: Ints | None = None,
    exclude_padding_from_average: Bool = False, ceil_mode: Bool = False,
):  # fmt: skip
    attributes = _attributes(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return op.AveragePool(x, count_include_pad=int(not exclude_padding_from_average), **attributes)


@rule("l2_pool")
def l2_pool(
    op, x, kernel_sizes: Ints, pad_type: Str, strides: Ints | None = None, pad: Ints | None = None, ceil_mode: Bool = False
):  # fmt: skip
    return op.LpPool(x, p=2, **_attributes(x, kernel_sizes, strides, pad_type, pad, ceil_mode))
