"""What the forms of attention share: heads out of rows and back, scores that are hidden, weighted values."""

from __future__ import annotations

import math

import numpy as np


def heads(op, x, number):
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return op.Transpose(op.Reshape(x, np.array([0, 0, number, -1], np.int64)), perm=[0, 2, 1, 3])


def joined(op, x):
    """(batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), np.array([0, 0, -1], np.int64))


def count(op, x, axis):
    """A size as a scalar value."""
    size = op.size(x, axis)
    return op.constant(np.array(size, np.int64)) if isinstance(size, int) else size


def places(op, start, end):
    """The whole numbers from one scalar value up to another."""
    return op.Range(start, end, np.array(1, np.int64))


def factor(op, q, scale):
    """What the scores are multiplied with: one over the root of a head's size where no scale is given."""
    if scale:
        return scale
    size = op.size(q, -1)
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    return op.CastLike(op.Reciprocal(op.Sqrt(op.Cast(size, to=1))), q)


def hidden(op, seen, filter_value, like):
    """What is added to scores: nothing where they are seen, `filter_value` elsewhere."""
    return op.Where(seen, op.CastLike(0.0, like), op.CastLike(filter_value, like))


def causal(op, queries, keys, past, filter_value, like):
    """What hides the keys behind each query; the first of the queries has the place behind the `past` keys.

    The last of them sees all keys in ONNX Runtime: its own place, but where there are more keys or fewer.
    """
    at = places(op, past, op.Add(past, queries))
    at = op.Unsqueeze(op.Where(op.Equal(at, op.Sub(op.Add(past, queries), 1)), op.Sub(keys, 1), at), [1])
    seen = op.LessOrEqual(op.Unsqueeze(places(op, np.array(0, np.int64), keys), [0]), at)
    return hidden(op, seen, filter_value, like)


def attended(op, scores, v):
    return op.MatMul(op.Softmax(scores, axis=-1), v)
