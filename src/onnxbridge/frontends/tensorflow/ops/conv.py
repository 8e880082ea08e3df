"""Convolutions. Filters are [spatial..., in, out]; a constant filter is transposed to ONNX's layout once, at conversion."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.channels_last import channels_last, first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.padding import window
from onnxbridge.hub.ir import fold


def _known(shape):
    if not all(isinstance(s, int) for s in shape):
        raise Unsupported("a filter of unknown shape")
    return list(shape)


def _convolve(op, x, filter, strides, padding, explicit, data_format, dilations):
    x = first(op, x, data_format)
    *kernel, within, out = _known(filter.shape)
    n = len(kernel)
    channels = x.shape[1]
    if not isinstance(channels, int) or channels % within:
        raise Unsupported("an unknown number of input channels")
    weight = op.Transpose(filter, perm=[n + 1, n, *range(n)])
    attrs = window(x, kernel, spatial(strides, data_format), spatial(dilations, data_format), padding, explicit, data_format)
    return last(op, op.Conv(x, weight, group=channels // within, kernel_shape=kernel, **attrs), data_format)


@rule("Conv2D")
def conv2d(op, input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)):
    return _convolve(op, input, filter, strides, padding, explicit_paddings, data_format, dilations)


@rule("Conv3D")
def conv3d(op, input, filter, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)):
    return _convolve(op, input, filter, strides, padding, (), data_format, dilations)


@rule("DepthwiseConv2dNative")
def depthwise_conv2d_native(
    op, input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    height, width, channels, multiplier = _known(filter.shape)
    x = first(op, input, data_format)
    weight = op.Reshape(op.Transpose(filter, perm=[2, 3, 0, 1]), [channels * multiplier, 1, height, width])
    kernel = [height, width]
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    attrs = window(x, kernel, strides, dilations, padding, explicit_paddings, data_format)
    return last(op, op.Conv(x, weight, group=channels, kernel_shape=kernel, **attrs), data_format)


@rule("Conv2DBackpropInput")
def conv2d_backprop_input(
    op, input_sizes, filter, out_backprop, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    return _transposed(op, input_sizes, filter, out_backprop, strides, padding, explicit_paddings, data_format, dilations)


@rule("Conv3DBackpropInputV2")
def conv3d_backprop_input_v2(
    op, input_sizes, filter, out_backprop, *, strides, padding, data_format="NDHWC", dilations=(1, 1, 1, 1, 1)
):
    return _transposed(op, input_sizes, filter, out_backprop, strides, padding, (), data_format, dilations)


def _transposed(op, input_sizes, filter, out_backprop, strides, padding, explicit, data_format, dilations):
    y = first(op, out_backprop, data_format)
    *kernel, out, within = _known(filter.shape)
    n = len(kernel)
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    sizes = fold.known_sizes(input_sizes) or [None] * (n + 2)
    if len(sizes) == n:  # input_sizes may omit batch and channels
        sizes = [None, *sizes, None]
    start = 1 if channels_last(data_format) else 2
    sizes = sizes[start : start + n]
    given = list(y.shape)[2:]
    pairs = [tuple(explicit[i : i + 2]) for i in range(0, len(explicit), 2)][start : start + n] or [None] * n
    begins, ends, extra = [], [], []
    for size, grown, k, s, d, pair in zip(sizes, given, kernel, strides, dilations, pairs, strict=True):
        if size is None or not isinstance(grown, int):
            raise Unsupported("the height and width of the result must be static", "give the input a static height and width")
        full = (grown - 1) * s + (k - 1) * d + 1
        if padding == "SAME":
            total = max(full - size, 0)
            pair = (total // 2, total - total // 2)
        elif pair is None:
            pair = (0, 0)
        begins.append(pair[0])
        ends.append(pair[1])
        extra.append(size - (full - sum(pair)))
    # the remainder after the last window is output_padding
    if any(e < 0 for e in extra):
        raise Unsupported(f"an output size of {sizes} that does not match the padding")
    shifted = [e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)]
    if any(shifted):
        raise Unsupported(f"an output size of {sizes} beyond the last window")
    groups = y.shape[1] // within
    if y.shape[1] != within:
        raise Unsupported(f"a transposed convolution in {groups} groups")
    weight = op.Transpose(filter, perm=[n + 1, n, *range(n)])
    z = op.ConvTranspose(
        y, weight, kernel_shape=kernel, strides=list(strides), dilations=list(dilations), pads=begins + ends,
        output_padding=extra if any(extra) else None,
    )  # fmt: skip
    return last(op, z, data_format)
