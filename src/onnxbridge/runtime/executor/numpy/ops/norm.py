"""Normalization. Statistics are computed in float32 at least; float16 results are rounded once."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.runtime.executor.numpy.dtypes import FLOAT, dtype_of, wide, widened
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.sums import mean, total


def _per_channel(v, x):
    return wide(v).reshape(-1, *(1,) * (x.ndim - 2))


def _normalized(x, axes, epsilon):
    """x with zero mean and unit variance over axes; also the mean and the inverse of the standard deviation."""
    center = mean(x, axes, keepdims=True)
    centred = x - center
    inverse = 1 / np.sqrt(mean(centred * centred, axes, keepdims=True) + x.dtype.type(epsilon))
    return centred * inverse, center, inverse


@rule("BatchNormalization")
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    x = wide(X)
    mean, var = wide(input_mean), wide(input_var)
    if training_mode:
        axes = (0, *range(2, x.ndim))
        running_mean, running_var = mean, var
        mean, var = np.mean(x, axis=axes), np.var(x, axis=axes)
    factor = wide(scale) / np.sqrt(var + var.dtype.type(epsilon))
    y = x * _per_channel(factor, x) + _per_channel(wide(B) - mean * factor, x)
    y = y.astype(X.dtype, copy=False)
    if not training_mode:
        return y
    decay = running_mean.dtype.type(momentum)
    new = ((running * decay + now * (1 - decay)) for running, now in ((running_mean, mean), (running_var, var)))
    return (y, *(v.astype(input_mean.dtype) for v in new))


@rule("LayerNormalization")
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=FLOAT):
    x = wide(X)
    y, center, inverse = _normalized(x, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = y * wide(Scale)
    if B is not None:
        y = y + wide(B)
    stash = dtype_of(stash_type)
    return y.astype(X.dtype, copy=False), center.astype(stash, copy=False), inverse.astype(stash, copy=False)


@rule("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=FLOAT):
    x = wide(X)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = x / np.sqrt(mean(x * x, axes, keepdims=True) + x.dtype.type(epsilon)) * wide(scale)
    return y.astype(scale.dtype, copy=False)


@rule("InstanceNormalization")
@widened
def instance_normalization(input, scale, B, *, epsilon=9.999999747378752e-06):
    y = _normalized(input, tuple(range(2, input.ndim)), epsilon)[0]
    return y * _per_channel(scale, input) + _per_channel(B, input)


@rule("GroupNormalization")
@widened
def group_normalization(X, scale, bias, *, epsilon=9.999999747378752e-06, num_groups, stash_type=FLOAT):
    groups = X.reshape(X.shape[0], num_groups, -1)
    y = _normalized(groups, (2,), epsilon)[0].reshape(X.shape)
    return y * _per_channel(scale, X) + _per_channel(bias, X)


@rule("MeanVarianceNormalization")
@widened
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    centred = X - mean(X, tuple(axes), keepdims=True)
    deviation = np.sqrt(mean(centred * centred, tuple(axes), keepdims=True))
    return centred / (deviation + X.dtype.type(1e-9))


@rule("LpNormalization")
@widened
def lp_normalization(input, *, axis=-1, p=2):
    size = total(np.abs(input), axis, keepdims=True) if p == 1 else _length(input, axis)
    return np.where(size == 0, 0, input / size).astype(input.dtype)


def _length(x, axis):
    return np.sqrt(total(x * x, axis, keepdims=True))


@rule("LRN")
@widened
def lrn(X, *, size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0):
    channels = X.shape[1]
    before, after = (min(reach, max(channels - 1, 0)) for reach in ((size - 1) // 2, size - 1 - (size - 1) // 2))
    padded = (X.shape[0], channels + before + after, *X.shape[2:])
    claim(padded, X.dtype)
    squares = np.zeros(padded, X.dtype)
    np.square(X, out=squares[:, before : before + channels])
    total = np.zeros_like(X)
    for i in range(before + after + 1):
        total += squares[:, i : i + channels]
    kind = X.dtype.type
    return X / (kind(bias) + kind(alpha / size) * total) ** kind(beta)


@rule("ai.onnx.ml::Normalizer")
def normalizer(X, *, norm="MAX"):
    """Rows divided by their size; a row of zeros is unchanged."""
    x = X.astype(np.float32) if X.dtype != np.float64 else X
    if norm == "MAX":
        size = np.max(x, axis=-1, keepdims=True)
    else:
        size = total(np.abs(x), -1, keepdims=True) if norm == "L1" else _length(x, -1)
    return np.where(size == 0, x, x / size).astype(np.float32)


@rule("ai.onnx.ml::Scaler")
def scaler(X, *, offset=None, scale=None):
    x = X.astype(np.float32) if X.dtype != np.float64 else X
    moved = x if offset is None else x - np.asarray(offset, x.dtype)
    return (moved if scale is None else moved * np.asarray(scale, x.dtype)).astype(np.float32)
