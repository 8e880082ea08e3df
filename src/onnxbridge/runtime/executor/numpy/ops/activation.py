"""Activation functions, and the softmax family."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.io.resource_limits import claim_broadcast
from onnxbridge.lowering import Ref
from onnxbridge.runtime.executor.buffer_pool import empty_like
from onnxbridge.runtime.executor.numpy.dtypes import widened
from onnxbridge.runtime.executor.numpy.kernels.special import erf
from onnxbridge.runtime.executor.numpy.ops import rule, variant
from onnxbridge.runtime.executor.numpy.sums import total


@rule("Relu")
def relu(X):
    return np.maximum(X, X.dtype.type(0), out=empty_like(X))


@rule("LeakyRelu")
@widened
def leaky_relu(X, *, alpha=0.009999999776482582):
    return np.where(X < 0, X * X.dtype.type(alpha), X)


@rule("PRelu")
@widened
def prelu(X, slope):
    claim_broadcast(X, slope)
    return np.where(X < 0, X * slope, X)


@rule("Elu")
@widened
def elu(X, *, alpha=1.0):
    return np.where(X > 0, X, X.dtype.type(alpha) * np.expm1(np.minimum(X, 0)))


@rule("Celu")
@widened
def celu(X, *, alpha=1.0):
    a = X.dtype.type(alpha)
    return np.maximum(X, 0) + np.minimum(a * np.expm1(X / a), 0)


@rule("Selu")
@widened
def selu(X, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875):
    return X.dtype.type(gamma) * elu(X, alpha=alpha)


@rule("Sigmoid")
@widened
def sigmoid(X):
    return 1 / (1 + np.exp(-X))


@rule("HardSigmoid")
@widened
def hard_sigmoid(X, *, alpha=0.20000000298023224, beta=0.5):
    return np.clip(X * X.dtype.type(alpha) + X.dtype.type(beta), 0, 1)


@rule("HardSwish")
@widened
def hard_swish(X):
    return X * np.clip(X / 6 + X.dtype.type(0.5), 0, 1)


@rule("Softplus")
@widened
def softplus(X):
    return np.logaddexp(X, X.dtype.type(0))


@rule("Softsign")
@widened
def softsign(input):
    return input / (1 + np.abs(input))


@rule("Gelu")
@widened
def gelu(X, *, approximate="none"):
    if approximate == "tanh":
        inner = X + X.dtype.type(0.044715) * X * X * X
        return X * X.dtype.type(0.5) * (1 + np.tanh(X.dtype.type(math.sqrt(2 / math.pi)) * inner))
    return X * X.dtype.type(0.5) * (1 + erf(X * X.dtype.type(math.sqrt(0.5))))


@rule("Mish")
@widened
def mish(X):
    return X * np.tanh(softplus(X))


@rule("Swish")
@widened
def swish(X, *, alpha=1.0):
    return X * sigmoid(X * X.dtype.type(alpha))


@rule("ThresholdedRelu")
@widened
def thresholded_relu(X, *, alpha=1.0):
    return np.where(alpha < X, X, X.dtype.type(0))


@rule("Shrink")
@widened
def shrink(input, *, bias=0.0, lambd=0.5):
    return np.where(input < -lambd, input + bias, np.where(input > lambd, input - bias, 0)).astype(input.dtype)


@rule("Softmax")
@widened
def softmax(input, *, axis=-1):
    return softmax_in_steps(input, axis=axis)


def _rounded_before(call):
    """Whether the scores are cast to their own type: Attention's function body marks its softmax precision so."""
    item = call.inputs[0]
    node = item.key.producer() if isinstance(item, Ref) and isinstance(item.key, ir.Value) else None
    if node is None or node.op_type != "Cast" or node.domain or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype == node.attributes["to"].as_int()


@variant("Softmax", when=_rounded_before)
def softmax_in_steps(input, *, axis=-1):
    """Softmax with every step in the element type, as Attention computes it in `softmax_precision`."""
    e = np.exp(input - _top(input, axis))
    e /= _total(e, axis)
    return e


def _total(x, axis):
    """The sum with keepdims; that of bfloat16 as a tree of eight branches, since NumPy adds sequentially and 256 + 1 is 256."""
    if x.dtype != ml_dtypes.bfloat16:
        return total(x, axis, keepdims=True)
    x = np.moveaxis(x, axis, -1)
    while x.shape[-1] != 1:
        rows = -(-x.shape[-1] // 8)
        filled = np.zeros((*x.shape[:-1], 8 * rows), x.dtype)
        filled[..., : x.shape[-1]] = x
        x = np.sum(filled.reshape(*x.shape[:-1], rows, 8), axis=-1) if rows else np.zeros((*x.shape[:-1], 1), x.dtype)
    return np.moveaxis(x, -1, axis)


@rule("LogSoftmax")
@widened
def log_softmax(input, *, axis=-1):
    shifted = input - _top(input, axis)
    return shifted - np.log(total(np.exp(shifted), axis, keepdims=True))


def _top(x, axis):
    return np.max(x, axis=axis, keepdims=True, initial=None if x.size else 0)


@rule("Hardmax")
def hardmax(input, *, axis=-1):
    if not input.size:
        return np.zeros_like(input)
    first = np.expand_dims(np.argmax(input, axis), axis)
    hot = np.zeros_like(input)
    np.put_along_axis(hot, first, hot.dtype.type(1), axis)
    return hot
