"""Random numbers. TensorFlow's generators differ from other frameworks'; `seed` only makes the module repeatable."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import known


def _seed(seed):
    return None if seed is None else int(abs(seed) * 1e6) % (1 << 31)


def _dtype(input, dtype):
    return input.dtype if dtype is None else dtypes.attribute(dtype)


def _normal(shape, dtype, mean, scale, seed):
    return tf.cast(tf.random.normal(shape, mean, scale, seed=_seed(seed)), dtype)


def _uniform(shape, dtype, low, high, seed):
    return tf.cast(tf.random.uniform(shape, low, high, seed=_seed(seed)), dtype)


@rule("RandomNormal")
def random_normal(*, shape, dtype=1, mean=0.0, scale=1.0, seed=None):
    return _normal(list(shape), dtypes.attribute(dtype), mean, scale, seed)


@rule("RandomUniform")
def random_uniform(*, shape, dtype=1, high=1.0, low=0.0, seed=None):
    return _uniform(list(shape), dtypes.attribute(dtype), low, high, seed)


@rule("RandomNormalLike")
def random_normal_like(input, *, dtype=None, mean=0.0, scale=1.0, seed=None):
    return _normal(tf.shape(input), _dtype(input, dtype), mean, scale, seed)


@rule("RandomUniformLike")
def random_uniform_like(input, *, dtype=None, high=1.0, low=0.0, seed=None):
    return _uniform(tf.shape(input), _dtype(input, dtype), low, high, seed)


@rule("Multinomial")
def multinomial(input, *, dtype=6, sample_size=1, seed=None):
    return tf.cast(tf.random.categorical(input, sample_size, seed=_seed(seed)), dtypes.attribute(dtype))


@rule("Bernoulli")
def bernoulli(input, *, dtype=None, seed=None):
    sample = tf.random.uniform(tf.shape(input), seed=_seed(seed)) < tf.cast(input, tf.float32)
    return tf.cast(sample, _dtype(input, dtype))


@rule("Dropout")
def dropout(data, ratio=None, training_mode=None, *, seed=None):
    training = known(training_mode)
    if training_mode is None or (isinstance(training, tuple) and not training[0]):
        return tf.identity(data), tf.ones_like(data, tf.bool)
    ratio = tf.constant(0.5) if ratio is None else tf.cast(tf.reshape(ratio, []), tf.float32)
    ratio = tf.where(tf.reshape(training_mode, []), ratio, 0.0)
    mask = tf.random.uniform(tf.shape(data), seed=_seed(seed)) >= ratio
    scaled = tf.cast(tf.cast(data, tf.float32) / (1 - ratio), data.dtype) if data.dtype != tf.float64 else data / tf.cast(
        1 - ratio, tf.float64
    )  # fmt: skip
    return tf.where(mask, scaled, tf.zeros_like(data)), mask
