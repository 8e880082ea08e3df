"""Activations."""

from __future__ import annotations

import math

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import size

rule.table(Relu=tf.nn.relu, Sigmoid=tf.sigmoid, Tanh=tf.tanh, Softsign=tf.nn.softsign)


@rule("Elu")
def elu(X, *, alpha=1.0):
    return tf.where(X > 0, X, alpha * tf.math.expm1(tf.minimum(X, tf.zeros_like(X))))


@rule("Celu")
def celu(X, *, alpha=1.0):
    return tf.nn.relu(X) + alpha * tf.math.expm1(tf.minimum(X, tf.zeros_like(X)) / alpha)


@rule("Selu")
def selu(X, *, alpha=1.6732631921768188, gamma=1.0507010221481323):
    return gamma * tf.where(X > 0, X, alpha * tf.math.expm1(tf.minimum(X, tf.zeros_like(X))))


@rule("Gelu")
def gelu(X, *, approximate="none"):
    if approximate == "tanh" and X.dtype == tf.float64:  # TensorFlow has its factor in float32
        return 0.5 * X * (1 + tf.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))
    return tf.nn.gelu(X, approximate=approximate == "tanh")


@rule("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.20000000298023224, beta=0.5):
    return tf.clip_by_value(alpha * X + beta, tf.zeros([], X.dtype), tf.ones([], X.dtype))


@rule("HardSwish")
def hard_swish(X):
    return X * hard_sigmoid(X, alpha=1 / 6)


@rule("Hardmax")
def hardmax(input, *, axis=-1):
    return tf.one_hot(tf.argmax(input, axis), size(input, axis), axis=axis, dtype=input.dtype)


@rule("LeakyRelu")
def leaky_relu(X, *, alpha=0.009999999776482582):
    return tf.where(X < 0, alpha * X, X)


@rule("LogSoftmax")
def log_softmax(input, *, axis=-1):
    return tf.nn.log_softmax(input, axis)


@rule("Mish")
def mish(X):
    return X * tf.tanh(tf.nn.softplus(X))


@rule("PRelu")
def p_relu(X, slope):
    return tf.where(X < 0, X * slope, X) if X.dtype not in (tf.uint32, tf.uint64) else tf.identity(X)


@rule("Shrink")
def shrink(input, *, bias=0.0, lambd=0.5):
    x = tf.cast(input, tf.float64) if input.dtype.is_integer else input
    shrunk = tf.where(x > lambd, x - bias, tf.where(x < -lambd, x + bias, tf.zeros_like(x)))
    return tf.cast(shrunk, input.dtype)


@rule("Softmax")
def softmax(input, *, axis=-1):
    weights = tf.nn.softmax(input, axis)
    # TensorFlow's kernels give zeros beside NaN
    total = tf.reduce_sum(weights, axis, keepdims=True)
    return tf.where(tf.math.is_nan(total), tf.cast(math.nan, input.dtype), weights)


@rule("Softplus")
def softplus(X):
    return tf.nn.softplus(X)


@rule("Swish")
def swish(X, *, alpha=1.0):
    return X * tf.sigmoid(X if alpha == 1.0 else alpha * X)


@rule("ThresholdedRelu")
def thresholded_relu(X, *, alpha=1.0):
    return tf.where(alpha < X, X, tf.zeros_like(X))
