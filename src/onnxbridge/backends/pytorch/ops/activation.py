"""Activations."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule

rule.table(Relu=torch.relu, Sigmoid=torch.sigmoid, Tanh=torch.tanh, Softsign=F.softsign, Mish=F.mish, HardSwish=F.hardswish)


@rule("Elu")
def elu(X, *, alpha=1.0):
    return F.elu(X, alpha)


@rule("Celu")
def celu(X, *, alpha=1.0):
    return F.celu(X, alpha)


@rule("Selu")
def selu(X, *, alpha=1.6732631921768188, gamma=1.0507010221481323):
    if (alpha, gamma) == (1.6732631921768188, 1.0507010221481323):
        return F.selu(X)
    return gamma * torch.where(X > 0, X, alpha * torch.expm1(X))


@rule("Gelu")
def gelu(X, *, approximate="none"):
    return F.gelu(X, approximate=approximate)


@rule("HardSigmoid")
def hard_sigmoid(X, *, alpha=0.20000000298023224, beta=0.5):
    if np.float32(alpha) == np.float32(1 / 6) and beta == 0.5:
        return F.hardsigmoid(X)
    return torch.clamp(alpha * X + beta, 0, 1)


@rule("Hardmax")
def hardmax(input, *, axis=-1):
    return torch.zeros_like(input).scatter(axis, torch.argmax(input, axis, keepdim=True), 1.0)


@rule("LeakyRelu")
def leaky_relu(X, *, alpha=0.009999999776482582):
    return F.leaky_relu(X, alpha)


@rule("LogSoftmax")
def log_softmax(input, *, axis=-1):
    return torch.log_softmax(input, axis)


@rule("PRelu")
def p_relu(X, slope):
    """torch.prelu supports one slope, or one per channel."""
    known = X.is_known and slope.is_known
    shape = [int(n) if isinstance(n, int) else 0 for n in slope.shape] if known else []
    channels = X.shape[1] if known and X.ndim > 1 else None
    if known and (math.prod(shape) == 1 or (len(shape) == X.ndim - 1 and math.prod(shape) == shape[0] == channels)):
        return torch.prelu(X, slope.reshape(-1) if len(shape) != 1 else slope)
    return torch.where(X < 0, X * slope, X)


@rule("Shrink")
def shrink(input, *, bias=0.0, lambd=0.5):
    shrunk = torch.where(input > lambd, input - bias, torch.where(input < -lambd, input + bias, torch.zeros_like(input)))
    return shrunk.to(input.dtype)


@rule("Softmax")
def softmax(input, *, axis=-1):
    return torch.softmax(input, axis)


@rule("Softplus")
def softplus(X):
    # above the threshold PyTorch returns x, which is exact from 20 in float32 and from 40 in float64
    return F.softplus(X, threshold=40.0) if X.dtype == torch.float64 else F.softplus(X)


@rule("Swish")
def swish(X, *, alpha=1.0):
    return F.silu(X) if alpha == 1.0 else X * torch.sigmoid(alpha * X)


@rule("ThresholdedRelu")
def thresholded_relu(X, *, alpha=1.0):
    return F.threshold(X, alpha, 0.0)
