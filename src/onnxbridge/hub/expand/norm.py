"""Normalization over the last axes, in the precision that the operator asks for."""

from __future__ import annotations

from onnxbridge.errors import Unsupported
from onnxbridge.hub.expand import expand


def _wide(op, X, axis, stash_type):
    """The data in the dtype to compute in, and the axes that are normalized."""
    if X.shape is None:
        raise Unsupported("a value of unknown rank")
    rank = len(X.shape)
    return X if X.dtype == stash_type else op.Cast(X, to=stash_type), list(range(axis % rank, rank))


@expand("LayerNormalization")
def layer_normalization(op, X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    x, axes = _wide(op, X, axis, stash_type)
    mean = op.ReduceMean(x, axes)
    centred = op.Sub(x, mean)
    inverse = op.Reciprocal(op.Sqrt(op.Add(op.ReduceMean(op.Mul(centred, centred), axes), epsilon)))
    y = op.Mul(centred, inverse)
    y = op.Mul(y if x is X else op.Cast(y, to=X.dtype), Scale)
    return y if B is None else op.Add(y, B), mean, inverse


@expand("RMSNormalization")
def rms_normalization(op, X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    x, axes = _wide(op, X, axis, stash_type)
    y = op.Div(x, op.Sqrt(op.Add(op.ReduceMean(op.Mul(x, x), axes), epsilon)))
    return op.Mul(y if x is X else op.Cast(y, to=X.dtype), scale)
