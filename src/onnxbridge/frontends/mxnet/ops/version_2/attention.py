"""Sliding-window attention, as in Longformer: each position attends to those within a window, in steps of its head's dilation.

Queries, keys and values have the shape [batch, length, heads, units], scores [batch, length, heads, window]; the window has w + 1
positions up to the own one, and with `symmetric` w more after it.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.ir.values import cast, static_shape

INT64 = ir.DataType.INT64


def _positions(op, length, dilation, w, symmetric):
    """The positions that each one attends to, [heads, length, window], and whether they exist."""
    offsets = np.arange(-w, w + 1 if symmetric else 1)
    steps = op.Mul(op.Reshape(cast(op, dilation, INT64), [-1, 1, 1]), offsets)
    positions = op.Add(steps, np.arange(length).reshape(1, -1, 1))
    exists = op.And(op.GreaterOrEqual(positions, 0), op.Less(positions, length))
    return op.Clip(positions, np.int64(0), np.int64(length - 1)), exists


def _window(op, x, positions):
    """The rows of keys or values at the positions: [heads, length, window, batch, units]."""
    rows = op.Transpose(x, perm=[2, 1, 0, 3])
    return op.GatherND(rows, op.Unsqueeze(positions, [-1]), batch_dims=1)


@rule("_contrib_sldwin_atten_score")
def sldwin_atten_score(op, query, key, dilation, *, w, symmetric):
    (length,) = static_shape(query, [1])
    positions, exists = _positions(op, length, dilation, w, symmetric)
    queries = op.Unsqueeze(op.Transpose(query, perm=[2, 1, 0, 3]), [2])
    found = op.ReduceSum(op.Mul(queries, _window(op, key, positions)), [-1], keepdims=0)
    found = op.Where(op.Unsqueeze(exists, [-1]), found, 0.0)
    return op.Transpose(found, perm=[3, 1, 0, 2])


@rule("_contrib_sldwin_atten_context")
def sldwin_atten_context(op, score, value, dilation, *, w, symmetric):
    (length,) = static_shape(value, [1])
    positions, exists = _positions(op, length, dilation, w, symmetric)
    weights = op.Where(op.Unsqueeze(exists, [-1]), op.Transpose(score, perm=[2, 1, 3, 0]), 0.0)
    mixed = op.ReduceSum(op.Mul(op.Unsqueeze(weights, [-1]), _window(op, value, positions)), [2], keepdims=0)
    return op.Transpose(mixed, perm=[2, 1, 0, 3])


@rule("_contrib_sldwin_atten_mask_like")
def sldwin_atten_mask_like(op, score, dilation, valid_length, *, w, symmetric):
    """1 where a position is attended to, 0 before the first and, with `symmetric`, after the last valid one."""
    (length,) = static_shape(score, [1])
    steps = op.Reshape(cast(op, dilation, INT64), [1, 1, -1, 1])
    valid = op.Reshape(cast(op, valid_length, INT64), [-1, 1, 1, 1])
    index = np.arange(length).reshape(1, -1, 1, 1)
    window = np.arange(2 * w + 1 if symmetric else w + 1)
    excluded = op.Or(op.Less(window, op.Sub(w, op.Div(index, steps))), op.GreaterOrEqual(index, valid))
    if symmetric:
        after = op.Div(op.Sub(op.Sub(valid, index), 1), steps)
        excluded = op.Or(excluded, op.Less(window[::-1].copy(), op.Sub(w, after)))
    zeros = op.Mul(score, 0.0)
    return op.Where(excluded, zeros, op.Add(zeros, 1.0))
