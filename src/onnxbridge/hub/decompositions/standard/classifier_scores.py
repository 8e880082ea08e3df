"""Post-transforms and labels of the classifiers and regressors of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import cast


def to_float(op, X):
    """Casts the input to the dtype in which ai.onnx.ml computes: float64 stays, all else becomes float32."""
    return X if X.dtype.name in ("FLOAT", "DOUBLE") else op.Cast(X, to=1)


def transformed(op, scores, post_transform):
    """Applies a post_transform to scores (rows, classes); the result is float32."""
    if post_transform == "NONE":
        return cast(op, scores, 1)
    if post_transform == "LOGISTIC":
        return cast(op, op.Sigmoid(scores), 1)
    if post_transform == "SOFTMAX":
        return cast(op, op.Softmax(scores, axis=1), 1)
    if post_transform != "SOFTMAX_ZERO":
        raise Unsupported(f"post_transform {post_transform!r}")
    exponentials = op.Exp(op.Sub(scores, op.ReduceMax(scores, [1])))
    exponentials = op.Where(op.Equal(scores, 0.0), 0.0, exponentials)  # SOFTMAX_ZERO keeps scores of exactly 0
    return cast(op, op.Div(exponentials, op.Max(op.ReduceSum(exponentials, [1]), float(np.finfo(np.float32).tiny))), 1)


def binary_scores(op, first, second, post_transform):
    """The two columns of a binary classifier that has a score for the second class only, in float32."""
    if post_transform == "NONE":
        return cast(op, op.Concat(first, second, axis=1), 1)
    if post_transform == "LOGISTIC":
        return transformed(op, op.Concat(op.Neg(second), second, axis=1), post_transform)
    raise Unsupported(f"post_transform {post_transform!r} of a binary classifier with a single score")


def labels(op, ints, strings):
    """The class labels as a constant."""
    if strings:
        return op.constant(np.array(strings, object))
    return op.constant(np.array(ints, np.int64))


def best(op, names, scores):
    """The label with the highest score; the first one if several share it."""
    return op.Gather(names, op.ArgMax(scores, axis=1, keepdims=0), axis=0)
