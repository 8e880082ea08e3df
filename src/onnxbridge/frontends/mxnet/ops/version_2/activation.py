"""Activations and special functions."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.activation import softmax
from onnxbridge.hub.decompositions.special import gamma
from onnxbridge.hub.ir.values import cast, like, rank


@rule("log_sigmoid")
def log_sigmoid(op, data):
    return op.Neg(op.Softplus(op.Neg(data)))


@rule("mish")
def mish(op, data):
    return op.Mish(data)


@rule("digamma")
def digamma(op, data):
    wide = op.Cast(data, to=np.float64)
    return like(op, gamma.digamma(op, wide), data)


def _mask(op, data, mask):
    return cast(op, mask, np.bool_)


@rule("masked_softmax")
def masked_softmax(op, data, mask, *, axis=-1, temperature=None, normalize=True):
    """Elements that the mask excludes count as -inf and give 0, rows without others 0."""
    kept = _mask(op, data, mask)
    y = softmax(op, op.Where(kept, data, -np.inf), axis=axis, temperature=temperature)
    return op.Where(kept, y, 0.0)


@rule("masked_log_softmax")
def masked_log_softmax(op, data, mask, *, axis=-1, temperature=None, normalize=True):
    kept = _mask(op, data, mask)
    scaled = data if temperature is None else op.Div(data, temperature)
    return op.Where(kept, op.LogSoftmax(op.Where(kept, scaled, -np.inf), axis=axis % rank(data)), -np.inf)
