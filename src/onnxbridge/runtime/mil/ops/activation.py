"""Activation functions."""

from math import pi, sqrt

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Int, Str
from onnxbridge.runtime.executor.numpy.kernels.special import erf
from onnxbridge.runtime.mil.ops import rule


def per_channel(values, rank):
    """Reshape a per-channel vector to (C, 1, ...), so that it broadcasts along the second axis."""
    return values.reshape(-1, *(1 for _ in range(rank - 2)))


@rule("relu")
def relu(x):
    return np.maximum(x, 0)


@rule("relu6")
def relu6(x):
    return np.clip(x, 0, 6)


@rule("clamped_relu")
def clamped_relu(x, alpha, beta):
    return np.minimum(beta, np.where(x >= 0, x, alpha * x))


@rule("leaky_relu")
def leaky_relu(x, alpha):
    return np.where(x >= 0, x, alpha * x)


@rule("prelu")
def prelu(x, alpha):
    return np.where(x > 0, x, per_channel(alpha, x.ndim) * x)


@rule("thresholded_relu")
def thresholded_relu(x, alpha):
    return np.where(x >= alpha, x, np.zeros_like(x))


@rule("elu")
def elu(x, alpha):
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@rule("gelu")
def gelu(x, mode: Str = "EXACT"):
    if mode == "EXACT":
        return 0.5 * x * (1 + erf(x / np.float32(sqrt(2))))
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(np.float32(sqrt(2 / pi)) * (x + np.float32(0.044715) * x * x * x)))
    if mode == "SIGMOID_APPROXIMATION":
        return x * sigmoid(np.float32(1.702) * x)
    raise Unsupported(f"mode {mode}")


@rule("sigmoid")
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@rule("sigmoid_hard")
def sigmoid_hard(x, alpha, beta):
    return np.clip(alpha * x + beta, 0, 1)


@rule("silu")
def silu(x):
    return x * sigmoid(x)


@rule("softplus")
def softplus(x):
    return np.logaddexp(x, np.zeros_like(x))


@rule("softplus_parametric")
def softplus_parametric(x, alpha, beta):
    return per_channel(alpha, x.ndim) * softplus(per_channel(beta, x.ndim) * x)


@rule("softmax")
def softmax(x, axis: Int = -1):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@rule("softsign")
def softsign(x):
    return x / (1 + np.abs(x))


@rule("scaled_tanh")
def scaled_tanh(x, alpha, beta):
    return alpha * np.tanh(beta * x)


@rule("linear_activation")
def linear_activation(x, alpha, beta):
    return alpha * x + beta
