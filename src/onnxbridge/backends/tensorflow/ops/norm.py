"""Normalization."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import channels_last, rule
from onnxbridge.backends.tensorflow.ops.conv import last, second
from onnxbridge.backends.tensorflow.padding import padded
from onnxbridge.backends.tensorflow.sizes import axis_of, packed, rank, sizes


def _channels(v, x):
    """Per-channel values, shaped to broadcast with `x`."""
    return tf.reshape(tf.cast(v, x.dtype), [-1] + [1] * (rank(x) - 2))


@rule("BatchNormalization")
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    if not training_mode:
        # one multiplication and one addition per element; the rest is per channel
        wide = tf.float64 if tf.float64 in (X.dtype, scale.dtype, input_var.dtype) else tf.float32
        scale, B, mean, var = (tf.cast(v, wide) for v in (scale, B, input_mean, input_var))
        factor = scale * tf.math.rsqrt(var + epsilon)
        return X * _channels(factor, X) + _channels(B - mean * factor, X)
    dims = [d for d in range(rank(X)) if d != 1]
    mean, var = tf.nn.moments(X, dims)
    y = (X - _channels(mean, X)) * tf.math.rsqrt(_channels(var, X) + epsilon) * _channels(scale, X) + _channels(B, X)
    return y, input_mean * momentum + mean * (1 - momentum), input_var * momentum + var * (1 - momentum)


def _standardized(x, dims, epsilon):
    mean = tf.reduce_mean(x, dims, keepdims=True)
    centred = x - mean
    return centred * tf.math.rsqrt(tf.reduce_mean(tf.square(centred), dims, keepdims=True) + epsilon)


def _wide(x, stash_type):
    return tf.cast(x, tf.float32) if stash_type == 1 and x.dtype.size == 2 else x


@rule("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=9.999999747378752e-06):
    y = _standardized(_wide(input, 1), list(range(2, rank(input))), epsilon)
    return tf.cast(y, input.dtype) * _channels(scale, input) + _channels(B, input)


@rule("GroupNormalization")
def group_normalization(X, scale, bias, *, num_groups, epsilon=9.999999747378752e-06, stash_type=1):
    n, c, *rest = sizes(X)
    groups = tf.reshape(_wide(X, stash_type), packed([n, num_groups, c // num_groups, *rest]))
    y = tf.reshape(_standardized(groups, list(range(2, rank(groups))), epsilon), packed([n, c, *rest]))
    return tf.cast(y, X.dtype) * _channels(scale, X) + _channels(bias, X)


@rule("LayerNormalization")
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    dims = list(range(axis_of(X, axis), rank(X)))
    wide = _wide(X, stash_type)
    mean = tf.reduce_mean(wide, dims, keepdims=True)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(wide - mean), dims, keepdims=True) + epsilon)
    y = tf.cast((wide - mean) * inverse, X.dtype) * Scale
    stash = tf.float32 if stash_type == 1 else X.dtype
    return y if B is None else y + B, tf.cast(mean, stash), tf.cast(inverse, stash)


@rule("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    wide = _wide(X, stash_type)
    dims = list(range(axis_of(X, axis), rank(X)))
    y = wide * tf.math.rsqrt(tf.reduce_mean(tf.square(wide), dims, keepdims=True) + epsilon)
    return tf.cast(tf.cast(y, X.dtype), scale.dtype) * scale


@rule("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    norm = tf.norm(input, ord=p, axis=axis, keepdims=True)
    return tf.math.divide_no_nan(input, norm)


@rule("LRN")
def lrn(X, *, size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0):
    windows = padded(tf.square(X), [(size - 1) // 2], [size // 2], start=1)
    channels = sizes(X)[1]
    total = tf.add_n([windows[:, i : i + channels] for i in range(size)])
    return X / tf.pow(bias + alpha / size * total, beta)


@rule("MeanVarianceNormalization")
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    mean = tf.reduce_mean(X, list(axes), keepdims=True)
    variance = tf.reduce_mean(tf.square(X), list(axes), keepdims=True) - tf.square(mean)
    return (X - mean) / (tf.sqrt(variance) + 1e-9)


def _last(function):
    """The rule of a normalization for data with the channels last."""

    def normalize(X, *rest, **attributes):
        return last(function(second(X), *rest, **attributes))

    return normalize


for _op, _rule in {
    "BatchNormalization": batch_normalization, "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
}.items():  # fmt: skip
    channels_last(_op)(_last(_rule))
