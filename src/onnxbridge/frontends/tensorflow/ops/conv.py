"""Convolutions. Filters are [spatial..., in, out]; a constant filter is transposed to ONNX's layout once, at conversion."""

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import channels_last, first, last, spatial
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.image import resize_bilinear
from onnxbridge.frontends.tensorflow.ops.rearrange import mirror_pad
from onnxbridge.frontends.tensorflow.padding import padded
from onnxbridge.hub.ir.values import cast, rank


def known_shape(shape):
    if not all(isinstance(s, int) for s in shape):
        raise Unsupported("a filter of unknown shape")
    return list(shape)


def _groups(channels, within):
    """A number of channels that is not known is taken for that of one group; runtimes check it."""
    if not isinstance(channels, int) or not isinstance(within, int):
        return 1
    if channels % within:
        raise Unsupported(f"{channels} input channels for a filter of {within}")
    return channels // within


def _convolve(op, x, filter, strides, padding, explicit, data_format, dilations):
    x = first(op, x, data_format)
    n = rank(filter) - 2
    kernel, within = [op.size(filter, i) for i in range(n)], filter.shape[n]
    weight = op.Transpose(filter, perm=[n + 1, n, *range(n)])
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    dtype = x.dtype
    if dtype.is_integer():  # of up to 32 bits: exact in float64
        x, weight = (op.Cast(v, to=ir.DataType.DOUBLE) for v in (x, weight))
    x, attrs = padded(op, x, kernel, strides, dilations, padding, explicit, data_format)
    known = kernel if all(isinstance(k, int) for k in kernel) else None
    y = op.Conv(x, weight, group=_groups(x.shape[1], within), kernel_shape=known, **attrs)
    return last(op, cast(op, y, dtype), data_format)


@rule("Conv2D")
def conv2d(op, input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)):
    return _convolve(op, input, filter, strides, padding, explicit_paddings, data_format, dilations)


@rule("FusedPadConv2D")
def fused_pad_conv2d(op, input, paddings, filter, *, mode, strides, padding):
    padded_input = mirror_pad(op, input, paddings, mode=mode)
    return conv2d(op, padded_input, filter, strides=strides, padding=padding)


@rule("FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv2d(op, input, size, paddings, filter, *, resize_align_corners=False, mode, strides, padding):
    resized = resize_bilinear(op, input, size, align_corners=resize_align_corners)
    return fused_pad_conv2d(op, resized, paddings, filter, mode=mode, strides=strides, padding=padding)


@rule("Conv3D")
def conv3d(op, input, filter, *, strides, padding, explicit_paddings=(), data_format="NDHWC", dilations=(1, 1, 1, 1, 1)):
    """TensorFlow has no `explicit_paddings` here; dilated convolutions that it writes as several operators do."""
    return _convolve(op, input, filter, strides, padding, explicit_paddings, data_format, dilations)


@rule("Conv")
def conv(
    op, input, filter, *, strides, padding, explicit_paddings=(), data_format="CHANNELS_LAST", dilations=(), batch_dims=1,
    groups=1,
):  # fmt: skip
    n = len(strides) - 2
    if batch_dims != 1:
        raise Unsupported(f"batch_dims={batch_dims}")
    layout = "N" + "DHW"[-n:] + "C" if data_format == "CHANNELS_LAST" else "NC" + "DHW"[-n:]
    return _convolve(op, input, filter, strides, padding, explicit_paddings, layout, dilations or (1,) * len(strides))


@rule("DepthwiseConv2dNative")
def depthwise_conv2d_native(
    op, input, filter, *, strides, padding, explicit_paddings=(), data_format="NHWC", dilations=(1, 1, 1, 1)
):
    height, width, channels, multiplier = known_shape(filter.shape)
    x = first(op, input, data_format)
    weight = op.Reshape(op.Transpose(filter, perm=[2, 3, 0, 1]), [channels * multiplier, 1, height, width])
    kernel = [height, width]
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    x, attrs = padded(op, x, kernel, strides, dilations, padding, explicit_paddings, data_format)
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
    *kernel, out, within = known_shape(filter.shape)
    n = len(kernel)
    found = out_backprop.shape[n + 1 if channels_last(data_format) else 1]
    if isinstance(found, int) and found != within:
        raise Unsupported(f"a filter of {within} output channels for {found}")
    wanted = sizes.elements(op, input_sizes, n + 2) if input_sizes.shape[0] != n else None  # which may omit batch and channels
    channels = None if wanted is None else wanted[-1 if channels_last(data_format) else 1]
    weight = op.Transpose(filter, perm=[n + 1, n, *range(n)])
    group = channels // out if isinstance(channels, int) else 1
    return transposed_convolution(
        op, input_sizes, weight, out_backprop, strides, padding, explicit, data_format, dilations, group
    )


def transposed_convolution(
    op, input_sizes, weight, out_backprop, strides, padding, explicit, data_format, dilations, group
):
    """The gradient of a convolution for its input, which has these sizes. The weight is in ONNX's layout."""
    y = first(op, out_backprop, data_format)
    kernel = known_shape(weight.shape)[2:]
    n = len(kernel)
    strides, dilations = spatial(strides, data_format), spatial(dilations, data_format)
    wanted = sizes.elements(op, input_sizes, n + 2 if input_sizes.shape[0] != n else n)
    start = 1 if channels_last(data_format) else 2
    wanted = wanted[start : start + n] if len(wanted) == n + 2 else wanted
    pairs = [tuple(explicit[i : i + 2]) for i in range(0, len(explicit), 2)][start : start + n] or [(0, 0)] * n
    attrs = {"kernel_shape": kernel, "strides": list(strides), "dilations": list(dilations), "group": group}
    starts, pads, extra = [], [], []
    for i, (size, k, s, d) in enumerate(zip(wanted, kernel, strides, dilations, strict=True)):
        grown = sizes.subtract(op, op.size(y, i + 2), 1)
        full = sizes.add(op, sizes.multiply(op, grown, s), (k - 1) * d + 1)
        total = sizes.maximum(op, sizes.subtract(op, full, size), 0)
        starts.append(sizes.divide(op, total, 2) if padding == "SAME" else pairs[i][0])
        pads.append(sizes.subtract(op, total, starts[-1]) if padding == "SAME" else pairs[i][1])
        extra.append(sizes.subtract(op, size, sizes.subtract(op, full, sizes.add(op, starts[-1], pads[-1]))))
    known = all(isinstance(v, int) for v in (*starts, *pads, *extra))
    if known and all(0 <= e < max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)):
        # what is left after the last window is output_padding
        z = op.ConvTranspose(y, weight, pads=starts + pads, output_padding=extra if any(extra) else None, **attrs)
    else:
        z = _cut(op, op.ConvTranspose(y, weight, **attrs), starts, wanted)
    return last(op, z, data_format)


def _cut(op, z, starts, wanted):
    """The part of the result that starts there and has these sizes; zeros where it does not reach."""
    n = len(wanted)
    ends = [sizes.add(op, s, w) for s, w in zip(starts, wanted, strict=True)]
    missing = [sizes.maximum(op, sizes.subtract(op, e, op.size(z, i + 2)), 0) for i, e in enumerate(ends)]
    if any(not isinstance(m, int) or m > 0 for m in missing):
        z = op.Pad(z, op.dims([0] * (n + 4) + missing))
    return op.Slice(z, op.dims(starts), op.dims(ends), list(range(2, n + 2)))
