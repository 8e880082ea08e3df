"""The forms in which ONNX Runtime's attention takes its mask, as numbers that are added to the scores."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import count, hidden, places


def padding(op, mask, q, keys, filter_value):
    """What a mask adds to the scores (batch, heads, queries, keys).

    It is of ones where a key is seen: (batch, keys), (batch, queries, keys) or, of the longest sequence, (batch, 1, longest,
    longest); or it counts the keys that are seen: (batch,), or (2 * batch,) with the first of them behind their end.
    """
    rank = rank_of(mask)
    if rank == 1:
        return op.Unsqueeze(hidden(op, _counted(op, mask, q, keys), filter_value, q), [1, 2])
    if rank == 4:
        queries = count(op, q, 2)
        first = op.Sub(keys, queries)
        rows, columns = (op.Unsqueeze(v, [0]) for v in (first, keys))
        mask = op.Slice(mask, op.Concat(rows, [0], axis=0), op.Concat(columns, columns, axis=0), [2, 3])
        return hidden(op, op.Greater(mask, 0), filter_value, q)
    return op.Unsqueeze(hidden(op, op.Greater(mask, 0), filter_value, q), [1, 2] if rank == 2 else [1])


def _counted(op, mask, q, keys):
    """Where a mask of one number (the end) or two (the end and the start) for each row lets keys be seen: (batch, keys)."""
    batch, length = op.size(q, 0), mask.shape[0]
    both = isinstance(batch, int) and isinstance(length, int)
    if both and length not in (batch, 2 * batch):
        raise Unsupported("a mask of cumulated lengths")
    at = op.Unsqueeze(places(op, np.array(0, np.int64), keys), [0])
    rows = op.reshape(op.Cast(mask, to=7), [2 if both and length == 2 * batch else 1, batch, 1])
    ends = op.Squeeze(op.Slice(rows, [0], [1], [0]), [0])
    seen = op.Less(at, ends)
    if both and length == 2 * batch:
        seen = op.And(seen, op.GreaterOrEqual(at, op.Squeeze(op.Slice(rows, [1], [2], [0]), [0])))
    return seen
