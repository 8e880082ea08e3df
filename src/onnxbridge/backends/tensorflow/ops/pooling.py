"""Pooling over windows and global pooling."""

from __future__ import annotations

import math

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import channels_last, rule
from onnxbridge.backends.tensorflow.ops.conv import last, second
from onnxbridge.backends.tensorflow.padding import padded, pads_of
from onnxbridge.backends.tensorflow.sizes import is_fixed, packed, rank, size, sizes
from onnxbridge.rules import Outputs


def _end_padding(n, before, after, extent, stride):
    """With ceil_mode, the padding at the end so that the last window that starts inside the padded input fits exactly."""
    count = -(-(n + before + after - extent) // stride) + 1
    late = (count - 1) * stride >= n + before
    count = count - (int(late) if isinstance(late, bool) else tf.cast(late, tf.int32))
    return (count - 1) * stride + extent - n - before


def _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides):
    spatial = len(kernel_shape)
    strides, dilations = strides or (1,) * spatial, dilations or (1,) * spatial
    before, after = pads_of(auto_pad, pads, sizes(X)[2:], kernel_shape, strides, dilations)
    final = after
    if ceil_mode and not auto_pad.startswith("SAME"):
        extents = [(k - 1) * d + 1 for k, d in zip(kernel_shape, dilations, strict=True)]
        final = [_end_padding(n, b, a, e, s) for n, b, a, e, s in zip(sizes(X)[2:], before, after, extents, strides, strict=True)]
    return strides, dilations, before, after, final


def windows(x, kernel, strides, dilations):
    """`x` with each spatial dimension split into window index and offset in the window; the offsets come last."""
    spatial = len(kernel)
    for d, (k, s, step) in enumerate(zip(kernel, strides, dilations, strict=True)):
        axis = 2 + 2 * d
        count = (size(x, axis) - (k - 1) * step - 1) // s + 1
        index = tf.range(count)[:, None] * s + tf.range(k)[None] * step
        x = tf.gather(x, index, axis=axis)
    order = [0, 1, *range(2, 2 + 2 * spatial, 2), *range(3, 3 + 2 * spatial, 2)]
    return tf.transpose(x, order)


def _has_kernel(dtype, spatial):
    """Whether TensorFlow has a pool on the CPU; in three dimensions that of float16 is that of float32."""
    floats = (tf.float32, tf.float16, tf.bfloat16) if spatial == 3 else (tf.float32, tf.float16, tf.bfloat16, tf.float64)
    return spatial <= 3 and dtype in floats


@rule("MaxPool")
def max_pool(
    X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, pads=None, storage_order=0, strides=None,
    outputs: Outputs,
):  # fmt: skip
    strides, dilations, before, _, final = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    least = X.dtype.min if X.dtype.is_integer else -math.inf
    spatial = len(kernel_shape)
    if not any(outputs[1:]) and _has_kernel(X.dtype, spatial) and set(dilations) == {1}:
        x = padded(last(X), before, final, least, start=1)
        return second(_pooled(tf.nn.max_pool2d, tf.nn.max_pool3d, x, kernel_shape, strides))
    found = windows(padded(X, before, final, least), kernel_shape, strides, dilations)
    flat = tf.reshape(found, packed([*sizes(found)[: 2 + spatial], math.prod(kernel_shape)]))
    values = tf.reduce_max(flat, -1)
    if not any(outputs[1:]):
        return values
    return values, _indices(X, flat, kernel_shape, strides, dilations, before, storage_order)


def _indices(X, flat, kernel_shape, strides, dilations, before, storage_order):
    """The index of each window's maximum in the whole input."""
    best = tf.argmax(flat, -1)
    spatial = len(kernel_shape)
    coordinates = []
    for d in reversed(range(spatial)):
        inside = best % kernel_shape[d]
        best = best // kernel_shape[d]
        shape = [-1 if i == d + 2 else 1 for i in range(2 + spatial)]
        window = tf.reshape(tf.range(tf.cast(size(flat, 2 + d), tf.int64), dtype=tf.int64), shape)
        coordinates.insert(0, window * strides[d] + inside * dilations[d] - tf.cast(before[d], tf.int64))
    dims = [tf.cast(n, tf.int64) for n in sizes(X)]
    order = list(reversed(range(spatial))) if storage_order else list(range(spatial))
    index = tf.zeros([], tf.int64)
    for d in order:
        index = index * dims[2 + d] + coordinates[d]
    channels = tf.reshape(tf.range(dims[0] * dims[1]), tf.stack([dims[0], dims[1], *[tf.constant(1, tf.int64)] * spatial]))
    return channels * tf.reduce_prod(tf.stack(dims[2:])) + index


def _pooled(two, three, x, kernel, strides):
    if len(kernel) == 1:
        return tf.squeeze(two(tf.expand_dims(x, 1), [1, 1, *kernel, 1], [1, 1, *strides, 1], "VALID"), [1])
    if len(kernel) == 2:
        return two(x, [1, *kernel, 1], [1, *strides, 1], "VALID")
    return tf.cast(three(tf.cast(x, tf.float32), [1, *kernel, 1], [1, *strides, 1], "VALID"), x.dtype)


@rule("AveragePool")
def average_pool(
    X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, count_include_pad=0, dilations=None, pads=None, strides=None
):
    strides, dilations, before, after, final = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    spatial = len(kernel_shape)
    unpadded = all(is_fixed(p) and p == 0 for p in (*before, *final))
    if unpadded and _has_kernel(X.dtype, spatial) and set(dilations) == {1}:
        return second(_pooled(tf.nn.avg_pool2d, tf.nn.avg_pool3d, last(X), kernel_shape, strides))
    dims = list(range(-spatial, 0))
    ones = tf.ones_like(X[:1, :1])
    if count_include_pad:
        ones = padded(ones, before, after, 1)
        ones = padded(ones, [0] * spatial, [f - a for f, a in zip(final, after, strict=True)])
    else:
        ones = padded(ones, before, final)
    total = tf.reduce_sum(windows(padded(X, before, final), kernel_shape, strides, dilations), dims)
    return total / tf.reduce_sum(windows(ones, kernel_shape, strides, dilations), dims)


@rule("LpPool")
def lp_pool(X, *, kernel_shape, auto_pad="NOTSET", ceil_mode=0, dilations=None, p=2, pads=None, strides=None):
    strides, dilations, before, _, final = _setup(X, kernel_shape, auto_pad, ceil_mode, dilations, pads, strides)
    powers = tf.pow(tf.abs(padded(X, before, final)), p)
    return tf.pow(tf.reduce_sum(windows(powers, kernel_shape, strides, dilations), list(range(-len(kernel_shape), 0))), 1 / p)


@channels_last("MaxPool")
def max_pool_last(X, **attributes):
    return last(max_pool(second(X), **attributes, outputs=(True,)))


@channels_last("AveragePool")
def average_pool_last(X, **attributes):
    return last(average_pool(second(X), **attributes))


@channels_last("GlobalAveragePool")
def global_average_pool_last(X):
    return tf.reduce_mean(X, list(range(1, rank(X) - 1)), keepdims=True)


@channels_last("GlobalMaxPool")
def global_max_pool_last(X):
    return tf.reduce_max(X, list(range(1, rank(X) - 1)), keepdims=True)


@rule("GlobalAveragePool")
def global_average_pool(X):
    return tf.reduce_mean(X, list(range(2, rank(X))), keepdims=True)


@rule("GlobalMaxPool")
def global_max_pool(X):
    return tf.reduce_max(X, list(range(2, rank(X))), keepdims=True)


@rule("GlobalLpPool")
def global_lp_pool(X, *, p=2):
    return tf.pow(tf.reduce_sum(tf.pow(tf.abs(X), p), list(range(2, rank(X))), keepdims=True), 1 / p)


@rule("MaxUnpool")
def max_unpool(X, I, output_shape=None, *, kernel_shape, pads=None, strides=None):  # noqa: E741  (ONNX's name)
    spatial = len(kernel_shape)
    strides, pads = strides or (1,) * spatial, pads or (0,) * (2 * spatial)
    inner = [
        (n - 1) * s + k - b - a
        for n, s, k, b, a in zip(sizes(X)[2:], strides, kernel_shape, pads[:spatial], pads[spatial:], strict=True)
    ]
    shape = packed([*sizes(X)[:2], *inner], tf.int64)
    zeros = tf.zeros(tf.reduce_prod(shape)[None], X.dtype)
    # written, not added: where the windows of the pool overlap, several have the same maximum
    flat = tf.tensor_scatter_nd_update(zeros, tf.reshape(I, [-1, 1]), tf.reshape(X, [-1]))
    found = tf.reshape(flat, shape)
    if output_shape is None:
        return found
    extra = [output_shape[d] - shape[d] for d in range(2 + spatial)]
    return padded(found, [0] * len(extra), [tf.cast(m, tf.int32) for m in extra], start=0)
