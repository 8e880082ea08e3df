"""The mask formats of ONNX Runtime's attention operators, as additive masks."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import additive_mask, arange, dim_size


def padding_mask(op, mask, q, keys, filter_value):
    """The additive mask for scores (batch, heads, queries, keys).

    A mask is 1 where a key is visible, of shape (batch, keys), (batch, queries, keys) or (batch, 1, max length, max length); or
    it holds the end of the visible keys, (batch,), or their ends and then their starts, (2 * batch,).
    """
    rank = rank_of(mask)
    if rank == 1:
        return op.Unsqueeze(additive_mask(op, _visible_from_ends(op, mask, q, keys), filter_value, q), [1, 2])
    if rank == 4:
        queries = dim_size(op, q, 2)
        first = op.Sub(keys, queries)
        rows, columns = (op.Unsqueeze(v, [0]) for v in (first, keys))
        mask = op.Slice(mask, op.Concat(rows, [0], axis=0), op.Concat(columns, columns, axis=0), [2, 3])
        return additive_mask(op, op.Greater(mask, 0), filter_value, q)
    return op.Unsqueeze(additive_mask(op, op.Greater(mask, 0), filter_value, q), [1, 2] if rank == 2 else [1])


def _visible_from_ends(op, mask, q, keys):
    """The visible keys (batch, keys) for a mask of ends, or of ends and starts."""
    batch, length = op.size(q, 0), mask.shape[0]
    static = isinstance(batch, int) and isinstance(length, int)
    if static and length not in (batch, 2 * batch):
        raise Unsupported("a mask of cumulative sequence lengths")
    positions = op.Unsqueeze(arange(op, np.array(0, np.int64), keys), [0])
    rows = op.reshape(op.Cast(mask, to=7), [2 if static and length == 2 * batch else 1, batch, 1])
    ends = op.Squeeze(op.Slice(rows, [0], [1], [0]), [0])
    visible = op.Less(positions, ends)
    if static and length == 2 * batch:
        visible = op.And(visible, op.GreaterOrEqual(positions, op.Squeeze(op.Slice(rows, [1], [2], [0]), [0])))
    return visible
