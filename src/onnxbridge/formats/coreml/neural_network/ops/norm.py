"""Normalization layers."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.coreml.neural_network import weights as stored
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32


@rule("batchnorm")
def batchnorm(
    mil, x, *, channels, computeMeanVar=False, instanceNormalization=False, epsilon=1e-5, gamma, beta, mean=None, variance=None
):  # fmt: skip
    gamma, beta = (mil.weight(stored.read(v, (int(channels),)), n) for n, v in (("gamma", gamma), ("beta", beta)))
    if computeMeanVar and not instanceNormalization:
        raise Unsupported("computeMeanVar over a batch, which is for training only")
    if instanceNormalization:
        return mil.instance_norm(x=x, gamma=gamma, beta=beta, epsilon=float32(epsilon))
    mean, variance = (mil.weight(stored.read(v, (int(channels),)), n) for n, v in (("mean", mean), ("variance", variance)))
    return mil.batch_norm(x=x, mean=mean, variance=variance, gamma=gamma, beta=beta, epsilon=float32(epsilon))


@rule("mvn")
def mvn(mil, x, *, acrossChannels=False, normalizeVariance=False, epsilon=1e-5):
    axes = np.array([-3, -2, -1] if acrossChannels else [-2, -1])
    centered = mil.sub(x=x, y=mil.reduce_mean(x=x, axes=axes, keep_dims=True))
    if not normalizeVariance:
        return centered
    variance = mil.reduce_mean(x=mil.square(x=centered), axes=axes, keep_dims=True)
    return mil.mul(x=centered, y=mil.rsqrt(x=variance, epsilon=float32(epsilon)))


@rule("l2normalize")
def l2normalize(mil, x, *, epsilon=1e-5):
    return mil.l2_norm(x=x, epsilon=float32(epsilon))


@rule("lrn")
def lrn(mil, x, *, alpha=0.0, beta=0.0, localSize, k=0.0):
    return mil.local_response_norm(x=x, size=int(localSize), alpha=float32(alpha), beta=float32(beta), k=float32(k))


@rule("layerNormalization")
def layer_normalization(mil, x, *, normalizedShape, eps=0.0, gamma, beta):
    shape = tuple(int(n) for n in normalizedShape)
    gamma, beta = (mil.weight(stored.read(v, shape), n) for n, v in (("gamma", gamma), ("beta", beta)))
    return mil.layer_norm(x=x, axes=np.arange(-len(shape), 0), gamma=gamma, beta=beta, epsilon=float32(eps))
