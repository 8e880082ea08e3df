"""Normalization."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.ir.values import cast, like, rank, static_shape


@rule("BatchNorm", "_npx_batch_norm")
def batch_norm(
    op, data, gamma, beta, moving_mean, moving_var, *, eps=1e-3, fix_gamma=True, use_global_stats=False,
    output_mean_var=False, axis=1, min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    """With `fix_gamma`, gamma is treated as 1."""
    if fix_gamma:
        gamma = op.constant(np.ones(static_shape(gamma), gamma.dtype.numpy()))
    axis %= rank(data)
    order = list(range(rank(data)))
    order[1], order[axis] = axis, 1
    x = data if axis == 1 else op.Transpose(data, perm=order)
    x = cast(op, x, gamma.dtype)
    y = like(op, op.BatchNormalization(x, gamma, beta, moving_mean, moving_var, epsilon=eps), data)
    y = y if axis == 1 else op.Transpose(y, perm=order)
    return y, op.Identity(moving_mean), op.Reciprocal(op.Sqrt(op.Add(moving_var, eps)))


@rule("_contrib_SyncBatchNorm", "BatchNorm_v1")
def sync_batch_norm(
    op, data, gamma, beta, moving_mean, moving_var, *, eps=1e-3, fix_gamma=True, use_global_stats=False, output_mean_var=False
):  # fmt: skip
    return batch_norm(op, data, gamma, beta, moving_mean, moving_var, eps=eps, fix_gamma=fix_gamma)


@rule("_contrib_BatchNormWithReLU")
def batch_norm_with_relu(
    op, data, gamma, beta, moving_mean, moving_var, *, eps=1e-3, fix_gamma=True, use_global_stats=False,
    output_mean_var=False, axis=1, min_calib_range=None, max_calib_range=None,
):  # fmt: skip
    y, *rest = batch_norm(op, data, gamma, beta, moving_mean, moving_var, eps=eps, fix_gamma=fix_gamma, axis=axis)
    return op.Relu(y), *rest


@rule("LayerNorm", "_npx_layer_norm")
def layer_norm(op, data, gamma, beta, *, axis=-1, eps=1e-5, output_mean_var=False):
    axis, last = axis % rank(data), rank(data) - 1
    order = list(range(rank(data)))
    order[axis], order[last] = last, axis
    x = data if axis == last else op.Transpose(data, perm=order)
    if not output_mean_var:
        y = op.LayerNormalization(x, gamma, beta, epsilon=eps)
        return y if axis == last else op.Transpose(y, perm=order)
    y, mean, inverse = op.LayerNormalization(x, gamma, beta, epsilon=eps, outputs=3)
    results = [y, mean, op.Reciprocal(inverse)]
    y, mean, std = results if axis == last else [op.Transpose(r, perm=order) for r in results]
    return y, mean, std


@rule("InstanceNorm")
def instance_norm(op, data, gamma, beta, *, eps=1e-3):
    return op.InstanceNormalization(data, gamma, beta, epsilon=eps)


@rule("GroupNorm")
def group_norm(op, data, gamma, beta, *, num_groups=1, eps=1e-5, output_mean_var=False):
    """Gamma and beta have one element per group, so groups correspond to the channels of InstanceNorm; in MXNet 2 they have one
    per channel."""
    grouped = op.Reshape(data, [0, num_groups, -1])
    if static_shape(gamma) == [num_groups]:
        y = op.Reshape(op.InstanceNormalization(grouped, gamma, beta, epsilon=eps), op.Shape(data))
    else:
        y = op.GroupNormalization(data, gamma, beta, epsilon=eps, num_groups=num_groups)
    if not output_mean_var:
        return y
    mean = op.ReduceMean(grouped, [2])
    variance = op.ReduceMean(op.Mul(*[op.Sub(grouped, mean)] * 2), [2], keepdims=0)
    return y, op.Squeeze(mean, [2]), op.Sqrt(op.Add(variance, eps))


@rule("L2Normalization")
def l2_normalization(op, data, *, eps=1e-10, mode="instance"):
    axes = {"instance": range(1, rank(data)), "channel": [1], "spatial": range(2, rank(data))}[mode]
    squares = op.ReduceSumSquare(data, list(axes)) if axes else op.Mul(data, data)
    return op.Div(data, op.Sqrt(op.Add(squares, eps)))


@rule("LRN")
def lrn(op, data, *, alpha=1e-4, beta=0.75, knorm=2.0, nsize):
    """A window of even size is one smaller, since as many channels count on both sides, but its sum is divided by the size."""
    size = nsize if nsize % 2 else nsize - 1
    return op.LRN(data, alpha=alpha * size / nsize, beta=beta, bias=knorm, size=size)
