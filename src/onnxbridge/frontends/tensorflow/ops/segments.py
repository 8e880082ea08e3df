"""Reductions of rows by segment ids."""

import numpy as np

from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.indexing import scatter
from onnxbridge.frontends.tensorflow.sizes import MOST, int64
from onnxbridge.frontends.tensorflow.wider_dtypes import compute, where
from onnxbridge.hub.ir.values import SORTED, rank


def _lowest(dtype):
    return np.iinfo(dtype).min if dtype.kind in "iu" else np.finfo(dtype).min


def _highest(dtype):
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.finfo(dtype).max


_REDUCTIONS = {  # the reduction of ScatterND and its neutral element
    "Sum": ("add", lambda dtype: 0), "Prod": ("mul", lambda dtype: 1), "Max": ("max", _lowest), "Min": ("min", _highest),
}  # fmt: skip


def _reduced(op, kind, data, ids, count, inner):
    """The rows of each segment reduced, [count, *inner]; a segment without rows has the neutral element."""
    reduction, neutral = _REDUCTIONS[kind]
    dtype = data.dtype.numpy()
    base = np.array(neutral(np.dtype(dtype)), dtype)
    return scatter(op, op.Expand(base, op.Concat(count, inner, axis=0)), op.Unsqueeze(ids, [-1]), data, reduction)


def _unsorted(name, kind):
    @rule(name)
    def segments(op, data, segment_ids, num_segments):
        """Negative ids are dropped: their rows go to an extra segment, which is removed."""
        count = op.Reshape(int64(op, num_segments), [1])
        ids = int64(op, segment_ids)
        ids = op.Where(op.Less(ids, 0), op.Reshape(count, []), ids)
        filled = _reduced(op, kind, data, ids, op.Add(count, 1), _inner(op, data, segment_ids))
        return op.Slice(filled, [0], count, [0])


def _inner(op, data, ids):
    """The shape of the elements that have one id."""
    if ids.shape is None:
        return op.Slice(op.Shape(data), op.Shape(op.Shape(ids)), [MOST], [0])
    return op.Shape(data, start=rank(ids))


def _row_counts(op, data, ids, count):
    """How many rows each segment has, in the dtype of the data, shaped to broadcast over the segments."""
    ones = op.Expand(np.array(1, data.dtype.numpy()), op.Shape(ids))
    rows = scatter(op, op.Expand(np.array(0, data.dtype.numpy()), count), op.Unsqueeze(ids, [-1]), ones, "add")
    return op.Reshape(rows, op.Concat(count, op.Expand(np.int64(1), op.Shape(op.Shape(data, start=1))), axis=0), allowzero=1)


def _segments(op, kind, data, segment_ids, num_segments=None):
    """Sorted ids, the last of which determines the number of segments if num_segments does not.

    Segments without rows are 0, or 1 for Prod.
    """
    segment_ids.meta[SORTED] = True
    ids = int64(op, segment_ids)
    if num_segments is None:
        count = op.Add(op.Gather(op.Concat([-1], ids, axis=0), [-1]), 1)
    else:
        count = op.Reshape(int64(op, num_segments), [1])
    inner = op.Shape(data, start=1)
    if kind in ("Sum", "Prod"):
        return _reduced(op, kind, data, ids, count, inner)
    rows = _row_counts(op, data, ids, count)
    one, zero = (np.array(v, data.dtype.numpy()) for v in (1, 0))
    if kind in ("Max", "Min"):
        return where(op, op.Equal(rows, zero), zero, _reduced(op, kind, data, ids, count, inner))
    divisor = compute(op, "Max", rows, one)
    return op.Div(_reduced(op, "Sum", data, ids, count, inner), op.Sqrt(divisor) if kind == "SqrtN" else divisor)


def _sorted_rules(kind):
    @rule(f"Segment{kind}")
    def segments(op, data, segment_ids):
        return _segments(op, kind, data, segment_ids)


def _sparse_rules(kind):
    @rule(f"SparseSegment{kind}")
    def sparse_segments(op, data, indices, segment_ids, *, sparse_gradient=False):
        return _segments(op, kind, op.Gather(data, indices, axis=0), segment_ids)

    @rule(f"SparseSegment{kind}WithNumSegments")
    def sparse_segments_of(op, data, indices, segment_ids, num_segments, *, sparse_gradient=False):
        return _segments(op, kind, op.Gather(data, indices, axis=0), segment_ids, num_segments)


for _kind in _REDUCTIONS:
    _unsorted(f"UnsortedSegment{_kind}", _kind)
for _kind in ("Sum", "Prod", "Max", "Min", "Mean"):
    _sorted_rules(_kind)
for _kind in ("Sum", "Mean", "SqrtN"):
    _sparse_rules(_kind)
