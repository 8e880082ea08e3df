"""Helpers shared by the attention operators: splitting and merging heads, masks, scale."""

from __future__ import annotations

import math

import numpy as np


def split_heads(op, x, number):
    """(batch, sequence, heads * size) to (batch, heads, sequence, size)."""
    return op.Transpose(op.Reshape(x, np.array([0, 0, number, -1], np.int64)), perm=[0, 2, 1, 3])


def merge_heads(op, x):
    """(batch, heads, sequence, size) to (batch, sequence, heads * size)."""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), np.array([0, 0, -1], np.int64))


def dim_size(op, x, axis):
    """The size of an axis as a scalar value."""
    size = op.size(x, axis)
    return op.constant(np.array(size, np.int64)) if isinstance(size, int) else size


def arange(op, start, end):
    """The integers from `start` up to, but not including, `end` (scalar values)."""
    return op.Range(start, end, np.array(1, np.int64))


def attention_scale(op, q, scale):
    """The factor of the scores: `scale`, or 1 / sqrt(head size) if that is not given."""
    if scale:
        return scale
    size = op.size(q, -1)
    if isinstance(size, int):
        return 1 / math.sqrt(size)
    return op.CastLike(op.Reciprocal(op.Sqrt(op.Cast(size, to=1))), q)


def additive_mask(op, visible, filter_value, like):
    """An additive mask: 0 where `visible`, `filter_value` elsewhere."""
    return op.Where(visible, op.CastLike(0.0, like), op.CastLike(filter_value, like))


def causal_mask(op, queries, keys, past, filter_value, like):
    """The additive causal mask; the first query is at position `past`.

    As in ONNX Runtime, the last query sees all keys, which matters if there are more or fewer keys than queries.
    """
    position = arange(op, past, op.Add(past, queries))
    position = op.Unsqueeze(op.Where(op.Equal(position, op.Sub(op.Add(past, queries), 1)), op.Sub(keys, 1), position), [1])
    visible = op.LessOrEqual(op.Unsqueeze(arange(op, np.array(0, np.int64), keys), [0]), position)
    return additive_mask(op, visible, filter_value, like)


def weighted_values(op, scores, v):
    """The values weighted by the softmax of the scores."""
    return op.MatMul(op.Softmax(scores, axis=-1), v)
