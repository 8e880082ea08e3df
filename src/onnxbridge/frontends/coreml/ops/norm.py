"""Normalization operators."""

import numpy as np

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import like, rank, static_shape
from onnxbridge.rules import Float, Int, Ints


def _or_constant(op, values, x, number):
    """Per-channel values; if there are none, a constant for all channels."""
    return op.constant(np.full(static_shape(x, [1]), number, x.dtype.numpy())) if values is None else values


@rule("batch_norm")
def batch_norm(op, x, mean, variance, gamma=None, beta=None, epsilon: Float = 1e-5):
    gamma, beta = _or_constant(op, gamma, x, 1), _or_constant(op, beta, x, 0)
    return op.BatchNormalization(x, gamma, beta, mean, variance, epsilon=epsilon)


@rule("instance_norm")
def instance_norm(op, x, gamma=None, beta=None, epsilon: Float = 1e-5):
    return op.InstanceNormalization(x, _or_constant(op, gamma, x, 1), _or_constant(op, beta, x, 0), epsilon=epsilon)


@rule("layer_norm")
def layer_norm(op, x, axes: Ints | None = None, gamma=None, beta=None, epsilon: Float = 1e-5):
    axes = sorted(a % rank(x) for a in (range(rank(x)) if axes is None else axes))
    if axes == list(range(rank(x) - len(axes), rank(x))):
        scale = op.constant(np.ones(static_shape(x, axes), x.dtype.numpy())) if gamma is None else gamma
        return op.LayerNormalization(x, scale, beta, axis=axes[0] - rank(x), epsilon=epsilon)
    centered = op.Sub(x, op.ReduceMean(x, axes))
    y = op.Div(centered, op.Sqrt(op.Add(op.ReduceMean(op.Mul(centered, centered), axes), epsilon)))
    shape = op.dims([op.size(x, a) if a in axes else 1 for a in range(rank(x))])
    y = y if gamma is None else op.Mul(y, op.Reshape(gamma, shape))
    return y if beta is None else op.Add(y, op.Reshape(beta, shape))


@rule("l2_norm")
def l2_norm(op, x, epsilon: Float = 1e-6):
    return op.Div(x, op.Sqrt(op.Add(op.ReduceSumSquare(x, [-3, -2, -1]), epsilon)))


@rule("local_response_norm")
def local_response_norm(op, x, size: Int, alpha: Float = 1e-4, beta: Float = 0.75, k: Float = 1.0):
    """Normalizes over `size` adjacent channels; for an even size there is one more before, while ONNX has one more after.

    For rank 3 the channels are the first axis, as Apple's tests of the operator expect.
    """
    if size % 2 and rank(x) == 4:
        return op.LRN(x, size=size, alpha=alpha, beta=beta, bias=k)
    channels = 0 if rank(x) == 3 else 1
    lead = [1] if channels == 0 else [op.size(x, 0)]
    rows = op.reshape(op.Mul(x, x), [*lead, 1, op.size(x, channels), -1])
    mean = op.AveragePool(rows, kernel_shape=[size, 1], pads=[size // 2, 0, (size - 1) // 2, 0], count_include_pad=1)
    scale = op.Add(op.Mul(op.Reshape(mean, op.Shape(x)), alpha), k)
    return op.Div(x, op.Pow(scale, like(op, op.constant(np.float32(beta)), x)))
