"""Normalization."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.rules import Outputs


def shortest(number, x):
    """A float32 attribute with its shortest digits, 1e-05, not 9.999999747378752e-06; the number itself for a float64 `x`."""
    return number if x.dtype == torch.float64 else float(str(np.float32(number)))


@rule("BatchNormalization")
def batch_normalization(
    X, scale, B, input_mean, input_var, *, epsilon=9.999999747378752e-06, momentum=0.8999999761581421, training_mode=0
):
    if not training_mode:
        parameters = [v.to(X.dtype) for v in (input_mean, input_var, scale, B)]
        factor = round(1 - shortest(momentum, X), 7)
        return F.batch_norm(X, *parameters, training=False, momentum=factor, eps=shortest(epsilon, X))
    dims = [d for d in range(X.ndim) if d != 1]
    mean, var = torch.mean(X, dims), torch.var(X, dims, correction=0)
    y = F.batch_norm(X, mean, var, scale.to(X.dtype), B.to(X.dtype), training=False, eps=epsilon)
    return y, input_mean * momentum + mean * (1 - momentum), input_var * momentum + var * (1 - momentum)


@rule("InstanceNormalization")
def instance_normalization(input, scale, B, *, epsilon=9.999999747378752e-06):
    spatial = input.shape[2:]
    if all(isinstance(n, int) for n in spatial) and math.prod(spatial) > 1:  # PyTorch rejects a single spatial element
        return F.instance_norm(input, weight=scale, bias=B, eps=shortest(epsilon, input))
    return torch.group_norm(input, scale.shape[0], scale, B, shortest(epsilon, input))


@rule("GroupNormalization")
def group_normalization(X, scale, bias, *, num_groups, epsilon=9.999999747378752e-06, stash_type=1):
    return torch.group_norm(X, num_groups, scale, bias, shortest(epsilon, X))


@rule("LayerNormalization")
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1, outputs: Outputs):
    dims = list(range(axis % X.ndim, X.ndim))
    size = [X.shape[d] for d in dims]
    shapes_match = (
        list(Scale.shape) == size and (B is None or list(B.shape) == size) if all(isinstance(s, int) for s in size) else True
    )
    if not any(outputs[1:]) and shapes_match and Scale.ndim == len(size):
        return F.layer_norm(X, size, Scale, B, shortest(epsilon, X))
    wide = X.to(torch.float32) if stash_type == 1 and X.dtype in (torch.float16, torch.bfloat16) else X
    mean = torch.mean(wide, dims, keepdim=True)
    inverse = torch.rsqrt(torch.var(wide, dims, correction=0, keepdim=True) + epsilon)
    y = ((wide - mean) * inverse).to(X.dtype) * Scale
    stash = torch.float32 if stash_type == 1 else X.dtype
    return y if B is None else y + B, mean.to(stash), inverse.to(stash)


@rule("RMSNormalization")
def rms_normalization(X, scale, *, axis=-1, epsilon=9.999999747378752e-06, stash_type=1):
    dims = list(range(axis % X.ndim, X.ndim))
    size = [X.shape[d] for d in dims]
    wide = X.to(torch.float32) if stash_type == 1 and X.dtype in (torch.float16, torch.bfloat16) else X
    if list(scale.shape) == size and all(isinstance(n, int) for n in size) and scale.dtype == X.dtype == wide.dtype:
        return F.rms_norm(X, size, scale, shortest(epsilon, X))
    return (wide * torch.rsqrt(torch.mean(wide * wide, dims, keepdim=True) + epsilon)).to(X.dtype).to(scale.dtype) * scale


@rule("LpNormalization")
def lp_normalization(input, *, axis=-1, p=2):
    norm = torch.linalg.vector_norm(input, p, axis, keepdim=True)
    return torch.where(norm == 0, 0.0, input / norm)


@rule("LRN")
def lrn(X, *, size, alpha=9.999999747378752e-05, beta=0.75, bias=1.0):
    windows = F.pad(torch.square(X), [0, 0] * (X.ndim - 2) + [(size - 1) // 2, size // 2])
    return X / torch.pow(bias + alpha / size * windows.unfold(1, size, 1).sum(-1), beta)


@rule("MeanVarianceNormalization")
def mean_variance_normalization(X, *, axes=(0, 2, 3)):
    centred = X - torch.mean(X, axes, keepdim=True)
    return centred / (torch.sqrt(torch.mean(X * X, axes, keepdim=True) - torch.mean(X, axes, keepdim=True) ** 2) + 1e-9)
