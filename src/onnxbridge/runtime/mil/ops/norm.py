"""Normalization operators."""

import numpy as np

from onnxbridge.rules import Int, Ints
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.activation import per_channel


def _scale_and_shift(y, gamma, beta):
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def _standardize(x, axes, epsilon):
    """Normalize x to mean 0 and variance 1 over some axes."""
    centered = x - x.mean(axes, keepdims=True)
    return centered / np.sqrt(np.square(centered).mean(axes, keepdims=True) + epsilon)


@rule("batch_norm")
def batch_norm(x, mean, variance, gamma=None, beta=None, epsilon=1e-5):
    scale = 1 / np.sqrt(variance + epsilon) if gamma is None else gamma / np.sqrt(variance + epsilon)
    shift = -mean * scale if beta is None else beta - mean * scale
    return x * per_channel(scale, x.ndim) + per_channel(shift, x.ndim)


@rule("instance_norm")
def instance_norm(x, gamma=None, beta=None, epsilon=1e-5):
    gamma, beta = (v if v is None else per_channel(v, x.ndim) for v in (gamma, beta))
    return _scale_and_shift(_standardize(x, tuple(range(2, x.ndim)), epsilon), gamma, beta)


@rule("layer_norm")
def layer_norm(x, axes: Ints | None = None, gamma=None, beta=None, epsilon=1e-5):
    axes = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in axes)
    shape = [n if a in axes else 1 for a, n in enumerate(x.shape)]
    gamma, beta = (v if v is None else v.reshape(shape) for v in (gamma, beta))
    return _scale_and_shift(_standardize(x, axes, epsilon), gamma, beta)


@rule("l2_norm")
def l2_norm(x, epsilon=1e-6):
    return x / np.sqrt(np.square(x).sum((-3, -2, -1), keepdims=True) + epsilon)


@rule("local_response_norm")
def local_response_norm(x, size: Int, alpha=1e-4, beta=0.75, k=1.0):
    """Normalizes over `size` adjacent channels; for an even size there is one more before, as in PyTorch.

    For rank 3 the channels are the first axis, as Apple's tests of the operator expect, not the second as its documentation says.
    """
    axis = 0 if x.ndim == 3 else 1
    squares = np.square(np.moveaxis(x, axis, 0))
    padded = np.pad(squares, [(size // 2, (size - 1) // 2)] + [(0, 0)] * (x.ndim - 1))
    total = np.moveaxis(sum(padded[i : i + len(squares)] for i in range(size)), 0, axis)
    return x / (k + alpha / size * total) ** beta
