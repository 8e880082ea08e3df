"""Activation functions and softmax variants."""

from __future__ import annotations

import functools

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, fixed
from onnxbridge.errors import Unsupported


def _activation(kind):
    def lower(sym, *inputs):
        return sym.Activation(*inputs, act_type=kind)

    return lower


for _name, _kind in {"Sigmoid": "sigmoid", "Tanh": "tanh", "Softsign": "softsign"}.items():
    rule(_name)(_activation(_kind))


@rule("Softplus")
def softplus(sym, X):
    """MXNet's operator loses precision for small values."""
    tail = sym.log1p(sym.exp(sym.negative(sym.abs(X))))
    return sym.elemwise_add(sym.relu(X), tail)


@rule("Relu")
def relu(sym, X):
    return sym.relu(X)


def _with_float32_parameters(lower):
    """For MXNet's operators whose parameters are float32, and which need a dimension: other inputs take the decomposition."""

    @functools.wraps(lower)
    def checked(sym, X, **attrs):
        if X.dtype == np.float64 or X.shape == ():
            raise Unsupported("MXNet's operator takes neither float64 nor arrays without dimensions")
        return lower(sym, X, **attrs)

    return checked


@rule("LeakyRelu")
@_with_float32_parameters
def leaky_relu(sym, X, *, alpha=0.009999999776482582):
    return sym.LeakyReLU(X, act_type="leaky", slope=alpha)


@rule("Elu")
@_with_float32_parameters
def elu(sym, X, *, alpha=1.0):
    return sym.LeakyReLU(X, act_type="elu", slope=alpha)


@rule("Selu")
@_with_float32_parameters
def selu(sym, X, *, alpha=1.6732631921768188, gamma=1.0507010221481323):
    return sym._mul_scalar(sym.LeakyReLU(X, act_type="elu", slope=alpha), scalar=gamma, is_int=False)


@rule("PRelu")
def prelu(sym, X, slope):
    return sym._npi_where(sym._npi_less_scalar(X, scalar=0.0, is_int=False), sym._npi_multiply(X, slope), X)


@rule("HardSigmoid")
@_with_float32_parameters
def hard_sigmoid(sym, X, *, alpha=0.20000000298023224, beta=0.5):
    return sym.hard_sigmoid(X, alpha=alpha, beta=beta)


@rule("Softmax")
def softmax(sym, input, *, axis=-1):
    return sym.softmax(input, axis=axis)


@rule("LogSoftmax")
def log_softmax(sym, input, *, axis=-1):
    # a temperature keeps MXNet from oneDNN's log_softmax, which is off by 3e-6
    return sym.log_softmax(input, axis=axis, temperature=1.0)


@rule("Hardmax")
def hardmax(sym, input, *, axis=-1):
    axis %= len(input.shape)
    (size,) = fixed(input, [axis])
    indices = np.arange(size, dtype=np.int64).reshape([-1] + [1] * (len(input.shape) - 1 - axis))
    first = sym._npi_argmax(input, axis=axis, keepdims=True)
    first.dtype = np.dtype(np.int64)
    hot = sym._npi_equal(first, indices)
    hot.dtype = np.dtype(bool)
    return cast(sym, hot, input.dtype)


@rule("Clip")
def clip(sym, input, min=None, max=None):
    """Bounds are numbers if known, otherwise arrays; if min > max, the result is max."""
    y = input
    if min is not None:
        y = sym._npi_maximum(y, min)
    if max is not None:
        y = sym._npi_minimum(y, max)
    return y


@rule("Gelu")
@_with_float32_parameters
def gelu(sym, X, *, approximate="none"):
    if approximate != "none":
        raise Unsupported("MXNet does not support approximate='tanh'")
    return sym.LeakyReLU(X, act_type="gelu")
