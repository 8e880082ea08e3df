"""What the classifiers and regressors of ai.onnx.ml do to their scores at the end."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import cast


def floating(op, X):
    """The data as the models of ai.onnx.ml compute on it: doubles stay, all else becomes float32."""
    return X if X.dtype.name in ("FLOAT", "DOUBLE") else op.Cast(X, to=1)


def transformed(op, scores, how):
    """The scores (rows, classes) after a post_transform, in float32."""
    if how == "NONE":
        return cast(op, scores, 1)
    if how == "LOGISTIC":
        return cast(op, op.Sigmoid(scores), 1)
    if how == "SOFTMAX":
        return cast(op, op.Softmax(scores, axis=1), 1)
    if how != "SOFTMAX_ZERO":
        raise Unsupported(f"post_transform {how!r}")
    grown = op.Exp(op.Sub(scores, op.ReduceMax(scores, [1])))
    grown = op.Where(op.Equal(scores, 0.0), 0.0, grown)  # a score of exactly 0 stays 0
    return cast(op, op.Div(grown, op.Max(op.ReduceSum(grown, [1]), float(np.finfo(np.float32).tiny))), 1)


def pair(op, first, second, how):
    """Both columns of two classes of which only the second has a score, in float32."""
    if how == "NONE":
        return cast(op, op.Concat(first, second, axis=1), 1)
    if how == "LOGISTIC":
        return transformed(op, op.Concat(op.Neg(second), second, axis=1), how)
    raise Unsupported(f"post_transform {how!r} of two classes of which one has a score")


def labels(op, ints, strings):
    """The classes as a constant."""
    if strings:
        return op.constant(np.array(strings, object))
    return op.constant(np.array(ints, np.int64))


def best(op, names, scores):
    """The class with the highest score, the first of those that share it."""
    return op.Gather(names, op.ArgMax(scores, axis=1, keepdims=0), axis=0)
