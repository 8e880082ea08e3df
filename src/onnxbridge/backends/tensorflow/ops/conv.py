"""Convolutions. TensorFlow's CPU kernels require channels last; what has them on axis 1 is wrapped in transposes."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import channels_last, rule
from onnxbridge.backends.tensorflow.padding import padded, pads_of
from onnxbridge.backends.tensorflow.sizes import is_fixed, packed, rank, size, sizes
from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.auto_pad import split_padding


def last(x):
    """Move the channels from axis 1 to the last."""
    return tf.transpose(x, [0, *range(2, rank(x)), 1])


def second(x):
    """Move the channels from the last axis to axis 1."""
    return tf.transpose(x, [0, rank(x) - 1, *range(1, rank(x) - 1)])


def insert_zeros(x, steps):
    """`x`, channels last, with `steps - 1` zeros inserted between its elements."""
    for axis, d in enumerate(steps, start=1):
        if d > 1:
            shape = sizes(x)
            rows = tf.expand_dims(x, axis + 1)
            zeros = tf.zeros(packed([*shape[: axis + 1], d - 1, *shape[axis + 1 :]]), x.dtype)
            wide = tf.reshape(tf.concat([rows, zeros], axis + 1), packed([*shape[:axis], shape[axis] * d, *shape[axis + 1 :]]))
            x = wide[(*[slice(None)] * axis, slice(0, (shape[axis] - 1) * d + 1))]
    return x


def strided(y, strides):
    return y if set(strides) == {1} else y[(slice(None), *(slice(None, None, s) for s in strides))]


def convolved(x, kernel, strides, dilations, group):
    """A convolution, channels last, without padding; `kernel` is [spatial..., in, out]."""
    spatial = len(strides)
    if spatial == 1:
        y = convolved(tf.expand_dims(x, 1), tf.expand_dims(kernel, 0), (1, *strides), (1, *dilations), group)
        return tf.squeeze(y, [1])
    if spatial == 3 and group == 1:
        if set(dilations) == {1}:
            return tf.nn.conv3d(x, kernel, [1, *strides, 1], "VALID")
        return strided(tf.nn.convolution(x, kernel, padding="VALID", dilations=dilations), strides)
    if spatial == 2 and group > 1 and kernel.shape[2] == 1 and size(x, 3) == group:
        return depthwise(x, kernel, strides, dilations, group)
    if group > 1:
        return _by_group(x, kernel, strides, dilations, group)
    return tf.nn.conv2d(x, kernel, [1, *strides, 1], "VALID", dilations=[1, *dilations, 1])


def depthwise(x, kernel, strides, dilations, group):
    """A depthwise convolution; TensorFlow requires equal strides, and none with dilation."""
    multiple = kernel.shape[3] // group
    kernel = tf.reshape(kernel, [*kernel.shape[:2], group, multiple])
    if len(set(strides)) == 1 and set(dilations) == {1}:
        return tf.nn.depthwise_conv2d(x, kernel, [1, *strides, 1], "VALID")
    return strided(tf.nn.depthwise_conv2d(x, kernel, [1, 1, 1, 1], "VALID", dilations=list(dilations)), strides)


def _by_group(x, kernel, strides, dilations, group):
    parts = zip(tf.split(x, group, -1), tf.split(kernel, group, -1), strict=True)
    return tf.concat([convolved(a, k, strides, dilations, 1) for a, k in parts], -1)


@rule("Conv", limits="1 to 3 spatial dimensions")
def conv(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    return second(conv_last(
        last(X), W, B, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads, strides=strides
    ))  # fmt: skip


@channels_last("Conv")
def conv_last(X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None):
    spatial = rank(W) - 2
    if not 1 <= spatial <= 3:
        raise Unsupported(f"{spatial} spatial dimensions")
    strides, dilations = strides or (1,) * spatial, dilations or (1,) * spatial
    before, after = pads_of(auto_pad, pads, sizes(X)[1:-1], sizes(W)[2:], strides, dilations)
    kernel = tf.transpose(W, [*range(2, spatial + 2), 1, 0])
    y = convolved(padded(X, before, after, start=1), kernel, strides, dilations, group)
    return y if B is None else y + B


@rule("ConvInteger", limits="1 to 3 spatial dimensions")
def conv_integer(
    x, w, x_zero_point=None, w_zero_point=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
    strides=None,
):  # fmt: skip
    # sums of byte products are exact in float64; TensorFlow has no int32 convolution
    x, w = tf.cast(x, tf.float64), tf.cast(w, tf.float64)
    x = x if x_zero_point is None else x - tf.cast(x_zero_point, tf.float64)
    if w_zero_point is not None:
        w = w - tf.reshape(tf.cast(w_zero_point, tf.float64), [-1] + [1] * (rank(w) - 1))
    y = conv(x, w, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads, strides=strides)
    return tf.cast(y, tf.int32)


@rule("ConvTranspose", limits="1 to 3 spatial dimensions")
def conv_transpose(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None, output_shape=None,
    pads=None, strides=None,
):  # fmt: skip
    return second(conv_transpose_last(
        last(X), W, B, auto_pad=auto_pad, dilations=dilations, group=group, output_padding=output_padding,
        output_shape=output_shape, pads=pads, strides=strides,
    ))  # fmt: skip


@channels_last("ConvTranspose")
def conv_transpose_last(
    X, W, B=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, output_padding=None, output_shape=None,
    pads=None, strides=None,
):  # fmt: skip
    spatial = rank(W) - 2
    if not 1 <= spatial <= 3:
        raise Unsupported(f"{spatial} spatial dimensions")
    strides, dilations = strides or (1,) * spatial, dilations or (1,) * spatial
    extra = output_padding or (0,) * spatial
    inside = sizes(X)[1:-1]
    full = [s * (n - 1) + (k - 1) * d + 1 for n, k, s, d in zip(inside, sizes(W)[2:], strides, dilations, strict=True)]
    if output_shape or auto_pad.startswith("SAME"):
        target_sizes = output_shape[-spatial:] if output_shape else [n * s for n, s in zip(inside, strides, strict=True)]
        totals = [f + e - w for f, e, w in zip(full, extra, target_sizes, strict=True)]
        before, after = split_padding(totals, auto_pad)
        if not output_shape:  # what is missing for SAME is added at the end
            before = [max(b, 0) if is_fixed(b) else tf.maximum(b, 0) for b in before]
            after = [t - b for t, b in zip(totals, before, strict=True)]
    else:
        pads = pads if pads and auto_pad != "VALID" else (0,) * (2 * spatial)
        before, after = pads[:spatial], pads[spatial:]
    if set(dilations) == {1}:
        kernel = tf.transpose(W, [*range(2, spatial + 2), 1, 0])
        parts = zip(tf.split(X, group, -1), tf.split(kernel, group, -1), strict=True)
        y = tf.concat([_transposed(x, k, full, strides) for x, k in parts], -1)
    else:
        y = _transposed_dilated(X, W, strides, dilations, group)
    y = padded(y, [-b for b in before], [e - a for e, a in zip(extra, after, strict=True)], start=1)
    return y if B is None else y + B


def _transposed_dilated(x, w, strides, dilations, group):
    """The full transposed convolution, channels last: a dilated convolution of the input, spread by `strides`, with the flipped
    kernel.

    TensorFlow's transposed convolutions do not support dilation on the CPU, and a kernel with zeros would spread NaN.
    """
    c_in, c_out, *kernel = sizes(w)
    spatial = len(kernel)
    w = tf.reverse(tf.reshape(w, packed([group, c_in // group, c_out, *kernel])), list(range(3, spatial + 3)))
    w = tf.reshape(tf.transpose(w, [*range(3, spatial + 3), 1, 0, 2]), packed([*kernel, c_in // group, group * c_out]))
    padding = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    return convolved(padded(insert_zeros(x, strides), padding, padding, start=1), w, (1,) * spatial, dilations, group)


def _transposed(x, kernel, full, strides):
    """The full transposed convolution, channels last; `kernel` is [spatial..., out, in]."""
    if len(strides) == 1:
        y = _transposed(tf.expand_dims(x, 1), tf.expand_dims(kernel, 0), [1, *full], (1, *strides))
        return tf.squeeze(y, [1])
    function = tf.nn.conv2d_transpose if len(strides) == 2 else tf.nn.conv3d_transpose
    # positions without input (stride larger than the kernel) are zero: TensorFlow accepts full sizes only
    return function(x, kernel, packed([size(x, 0), *full, size(kernel, -2)]), [1, *strides, 1], "VALID")
