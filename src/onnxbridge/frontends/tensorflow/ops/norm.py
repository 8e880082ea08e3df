"""Normalization."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import rule


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", limits="inference only")
def fused_batch_norm(op, x, scale, offset, mean, variance, *, epsilon=1e-4, data_format="NHWC", is_training=True):
    if is_training:
        raise Unsupported("batch normalization in training mode", "convert the model with training=False")
    y = op.BatchNormalization(first(op, x, data_format), scale, offset, mean, variance, epsilon=epsilon)
    return last(op, y, data_format)


@rule("LRN")
def lrn(op, input, *, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5):
    size = 2 * depth_radius + 1
    y = op.LRN(first(op, input, "NHWC"), size=size, bias=bias, alpha=alpha * size, beta=beta)
    return last(op, y, "NHWC")


@rule("L2Loss")
def l2_loss(op, t):
    half = np.array(0.5, t.dtype.numpy())
    return op.Mul(op.ReduceSumSquare(t, keepdims=0), half)
