"""Normalization."""

import numpy as np

from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import rank


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(
    op, x, scale, offset, mean, variance, *, epsilon=1e-4, data_format="NHWC", is_training=True, exponential_avg_factor=1.0
):
    """The result, the statistics to go on with, those that a gradient needs, and an empty tensor."""
    y = first(op, x, data_format)
    empty = op.constant(np.zeros(0, np.float32))
    if not is_training:
        y = op.BatchNormalization(y, scale, offset, mean, variance, epsilon=epsilon)
        return last(op, y, data_format), mean, variance, mean, variance, empty
    wide = y if y.dtype == scale.dtype else op.Cast(y, to=scale.dtype)
    axes = [i for i in range(rank(y)) if i != 1]
    batch_mean = op.ReduceMean(wide, axes, keepdims=1)
    centered = op.Sub(wide, batch_mean)
    batch_variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=0)
    batch_mean = op.Reshape(batch_mean, [-1])
    y = op.BatchNormalization(y, scale, offset, batch_mean, batch_variance, epsilon=epsilon)
    count = op.Div(op.Cast(op.Size(wide), to=scale.dtype), op.Cast(op.Size(batch_mean), to=scale.dtype))
    unbiased = op.Mul(batch_variance, op.Div(count, op.Max(op.Sub(count, 1.0), 1.0)))
    new_mean, new_variance = batch_mean, unbiased
    if exponential_avg_factor != 1:
        new_mean, new_variance = (
            op.Add(op.Mul(old, 1.0 - exponential_avg_factor), op.Mul(new, float(exponential_avg_factor)))
            for old, new in ((mean, batch_mean), (variance, unbiased))
        )
    return last(op, y, data_format), new_mean, new_variance, batch_mean, batch_variance, empty


@rule("LRN")
def lrn(op, input, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    size = 2 * depth_radius + 1
    y = op.LRN(first(op, input, "NHWC"), size=size, bias=bias, alpha=alpha * size, beta=beta)
    return last(op, y, "NHWC")


@rule("L2Loss")
def l2_loss(op, t):
    half = np.array(0.5, t.dtype.numpy())
    return op.Mul(op.ReduceSumSquare(t, keepdims=0), half)
