"""Attention whose scores and weights are computed by subgraphs."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.ops.activation import softmax
from onnxbridge.backends.tensorflow.sizes import size


@rule("ai.onnx.preview::FlexAttention")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with a subgraph on the scores and another on the probabilities, computed in at least float32 by default."""
    least = tf.float32 if Q.dtype.size == 2 else Q.dtype
    within = least if softmax_precision is None else dtypes.attribute(softmax_precision)
    q, k, v = (tf.cast(x, within) for x in (Q, K, V))
    groups = size(q, 1) // size(k, 1)
    if not isinstance(groups, int) or groups != 1:
        k, v = (tf.repeat(x, groups, axis=1) for x in (k, v))
    factor = tf.math.rsqrt(tf.cast(size(q, 3), within)) if scale is None else scale
    scores = tf.matmul(q, k, transpose_b=True) * factor
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = softmax(scores)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return tf.cast(tf.matmul(weights, v), Q.dtype)
