"""Losses over logits."""

import numpy as np

from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import int64


def _shifted(op, features):
    """The logits minus the largest one, their exponentials and the sum of these."""
    logits = op.Sub(features, op.ReduceMax(features, [-1], keepdims=1))
    exponentials = op.Exp(logits)
    return logits, exponentials, op.ReduceSum(exponentials, [-1], keepdims=1)


@rule("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy_with_logits(op, features, labels):
    """The loss of each row, and its gradient."""
    logits, exponentials, total = _shifted(op, features)
    terms = op.Mul(labels, op.Sub(op.Log(total), logits))
    return op.ReduceSum(terms, [-1], keepdims=0), op.Sub(op.Div(exponentials, total), labels)


@rule("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy_with_logits(op, features, labels):
    """The loss of each row, and its gradient; NaN where a label is out of range."""
    logits, exponentials, total = _shifted(op, features)
    classes, labels = op.size(features, -1), op.Unsqueeze(int64(op, labels), [1])
    inside = op.And(op.GreaterOrEqual(labels, 0), op.Less(labels, classes))
    at = op.Where(inside, labels, 0)
    zero, one, nan = (np.array(v, features.dtype.numpy()) for v in (0, 1, np.nan))
    loss = op.Where(inside, op.Sub(op.Log(total), op.GatherElements(logits, at, axis=1)), nan)
    here = op.ScatterElements(op.Mul(exponentials, zero), at, op.Expand(one, op.Shape(at)), axis=1)
    return op.Squeeze(loss, [1]), op.Where(inside, op.Sub(op.Div(exponentials, total), here), nan)
