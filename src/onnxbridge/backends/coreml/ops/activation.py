"""Activation functions."""

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.element_types import is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import numbers


def _unary(function):
    return lambda x: function(x=x)


rule.table(
    Sigmoid=_unary(mb.sigmoid), Tanh=_unary(mb.tanh), Softsign=_unary(mb.softsign), Erf=_unary(mb.erf),
)  # fmt: skip


@rule("Relu")
def relu(X):
    return mb.relu(x=X) if is_float(X) else mb.maximum(x=X, y=np.int32(0))


@rule("Softplus")
def softplus(X):
    # MIL's softplus overflows on some of Core ML's compute units; max(x, 0) + log(1 + exp(-|x|)) does not.
    small = mb.exp(x=mb.mul(x=mb.abs(x=X), y=like(X, -1)))
    return mb.add(x=mb.relu(x=X), y=mb.log(x=mb.add(x=small, y=like(X, 1)), epsilon=like(X, 0)))


@rule("LeakyRelu")
def leaky_relu(X, *, alpha=0.009999999776482582):
    return mb.leaky_relu(x=X, alpha=like(X, alpha))


@rule("Elu")
def elu(X, *, alpha=1.0):
    return mb.elu(x=X, alpha=like(X, alpha))


@rule("ThresholdedRelu")
def thresholded_relu(X, *, alpha=1.0):
    return mb.select(cond=mb.greater(x=X, y=like(X, alpha)), a=X, b=like(X, 0))


@rule("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.20000000298023224, beta=0.5):
    return mb.sigmoid_hard(x=X, alpha=like(X, alpha), beta=like(X, beta))


@rule("Selu")
def selu(X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return mb.mul(x=mb.elu(x=X, alpha=like(X, alpha)), y=like(X, gamma))


@rule("Gelu")
def gelu(X, *, approximate="none"):
    return mb.gelu(x=X, mode="TANH_APPROXIMATION" if approximate == "tanh" else "EXACT")


@rule("Softmax")
def softmax(input, *, axis=-1):
    return mb.softmax(x=input, axis=axis)


@rule("PRelu")
def prelu(X, slope):
    """MIL's prelu if the slope is a constant per channel (for images: other ranks take one slope for all), else composed."""
    alpha = slope.val
    if is_float(X) and alpha is not None and X.rank >= 3:
        channels = np.asarray(alpha)
        per_channel = channels.ndim == X.rank - 1 and channels.shape[0] == X.shape[1] and channels.size == channels.shape[0]
        if per_channel and (X.rank == 4 or (channels == channels.flat[0]).all()):
            return mb.prelu(x=X, alpha=channels.reshape(-1))
    zero = like(X, 0)
    return mb.add(x=mb.maximum(x=X, y=zero), y=mb.mul(x=mb.minimum(x=X, y=zero), y=slope))


@rule("Hardmax")
def hardmax(input, *, axis=-1):
    depth = numbers(input)[axis]
    first = mb.reduce_argmax(x=input, axis=axis, keep_dims=False)
    return mb.one_hot(indices=first, one_hot_vector_size=depth, axis=axis, on_value=like(input, 1), off_value=like(input, 0))
