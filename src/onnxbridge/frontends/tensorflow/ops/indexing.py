"""Gather, scatter, slices and segments."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.shape import int64
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import SORTED, rank
from onnxbridge.rules import Int, Ints

MOST, LEAST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


@rule("Gather")
def gather(op, params, indices):
    return op.Gather(params, indices, axis=0)


@rule("GatherV2")
def gather_v2(op, params, indices, axis: Int, *, batch_dims=0):
    return _gathered(op, params, indices, axis, batch_dims)


@rule("ResourceGather")
def resource_gather(op, resource, indices, *, batch_dims=0, dtype):
    return _gathered(op, resource, indices, batch_dims, batch_dims)


def _gathered(op, params, indices, axis, batch_dims):
    axis = axis % rank(params)
    batch_dims = batch_dims % (rank(indices) + 1) if batch_dims < 0 else batch_dims
    if not batch_dims:
        return op.Gather(params, indices, axis=axis)
    if axis != batch_dims:  # move the indexed axis after the batch axes, and the indices' axes back to its position
        n, m = rank(params), rank(indices)
        rest = [i for i in range(n) if i != axis]
        moved = op.Transpose(params, perm=[*rest[:batch_dims], axis, *rest[batch_dims:]])
        y = _gathered(op, moved, indices, batch_dims, batch_dims)
        between = axis - batch_dims
        consumed = list(range(batch_dims, m))
        inner = list(range(m, m + between))
        return op.Transpose(y, perm=[*range(batch_dims), *inner, *consumed, *range(m + between, n - 1 + m - batch_dims)])
    return op.GatherND(params, op.Unsqueeze(int64(op, indices), [-1]), batch_dims=batch_dims)


@rule("GatherNd")
def gather_nd(op, params, indices):
    return op.GatherND(params, int64(op, indices))


@rule("ResourceGatherNd")
def resource_gather_nd(op, resource, indices, *, dtype):
    return op.GatherND(resource, int64(op, indices))


@rule("ScatterNd")
def scatter_nd(op, indices, updates, shape):
    zeros = op.Expand(np.zeros((), updates.dtype.numpy()), int64(op, shape))
    return op.ScatterND(zeros, int64(op, indices), updates, reduction="add")


def _scatter(name, reduction):
    @rule(name)
    def scatter(op, tensor, indices, updates):
        return op.ScatterND(tensor, int64(op, indices), updates, reduction=reduction)


for _name, _reduction in {
    "TensorScatterUpdate": "none", "TensorScatterAdd": "add", "TensorScatterMax": "max", "TensorScatterMin": "min",
}.items():  # fmt: skip
    _scatter(_name, _reduction)


@rule("TensorScatterSub")
def tensor_scatter_sub(op, tensor, indices, updates):
    return op.ScatterND(tensor, int64(op, indices), op.Neg(updates), reduction="add")


@rule("Slice")
def slice_(op, input, begin, size):
    sizes = fold.known_sizes(size)
    starts = fold.known_sizes(begin)
    if sizes is None or None in sizes:
        raise Unsupported("a slice of unknown size")
    axes = list(range(len(sizes)))
    if starts is not None and None not in starts:
        ends = [MOST if s == -1 else b + s for b, s in zip(starts, sizes, strict=True)]
        sliced = [i for i in axes if starts[i] or ends[i] != MOST and ends[i] != input.shape[i]]
        return op.Slice(input, [starts[i] for i in sliced], [ends[i] for i in sliced], sliced) if sliced else input
    begin = int64(op, begin)
    lengths = np.array([MOST if s == -1 else s for s in sizes], np.int64)
    to_end = lengths == MOST
    ends = op.Where(to_end, lengths, op.Add(begin, np.where(to_end, 0, lengths)))
    return op.Slice(input, begin, ends, axes)


@rule("StridedSlice")
def strided_slice(
    op, input, begin, end, strides: Ints, *, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0
):
    """Each position of the three vectors is an input axis, a new axis, or the ellipsis for the remaining axes."""
    kinds = [
        "..." if ellipsis_mask >> i & 1 else "new" if new_axis_mask >> i & 1 else "pick" if shrink_axis_mask >> i & 1 else "range"
        for i in range(len(strides))
    ]
    consumed = sum(k in ("pick", "range") for k in kinds)
    starts, ends, axes, steps, new, picks = [], [], [], [], [], []
    axis = new_axis_index = 0
    for i, kind in enumerate(kinds):
        if kind == "...":
            axis += rank(input) - consumed
            new_axis_index += rank(input) - consumed
        elif kind == "new":
            new.append(new_axis_index)
            new_axis_index += 1
        elif kind == "pick":
            picks.append((axis, i))
            axis += 1
        else:
            low = None if begin_mask >> i & 1 else _element(op, begin, i)
            high = None if end_mask >> i & 1 else _element(op, end, i)
            step = strides[i]
            low = (0 if step > 0 else MOST) if low is None else low
            high = (MOST if step > 0 else LEAST) if high is None else high
            if not (step == 1 and isinstance(low, int) and low == 0 and isinstance(high, int) and high == MOST):
                starts.append(low)
                ends.append(high)
                axes.append(axis)
                steps.append(step)
            axis += 1
            new_axis_index += 1
    x = op.Slice(input, _vector(op, starts), _vector(op, ends), axes, steps) if axes else input
    for k, (a, i) in enumerate(picks):
        at = _element(op, begin, i)
        x = op.Gather(x, np.array(at) if isinstance(at, int) else op.Squeeze(at, [0]), axis=a - k)
    return op.Unsqueeze(x, new) if new else x


def _element(op, vector, i):
    """One element of an index vector: a number if it is known, otherwise a one-element value."""
    known = fold.known_sizes(vector)
    if known is not None and known[i] is not None:
        return known[i]
    return op.Slice(int64(op, vector), [i], [i + 1], [0])


def _vector(op, elements):
    if all(isinstance(e, int) for e in elements):
        return elements
    return op.Concat(*(np.array([e], np.int64) if isinstance(e, int) else e for e in elements), axis=0)


@rule("OneHot")
def one_hot(op, indices, depth, on_value, off_value, *, axis=-1):
    """Negative indices select nothing in TensorFlow but wrap in ONNX, so they are moved out of range."""
    depth = op.Reshape(int64(op, depth), [1])
    indices = int64(op, indices)
    outside = op.Where(op.Less(indices, 0), op.Reshape(depth, []), indices)
    if on_value.dtype == ir.DataType.BOOL:  # runtimes have no kernel for booleans
        on_value, off_value = (op.Cast(v, to=ir.DataType.INT64) for v in (on_value, off_value))
        return op.Cast(one_hot(op, indices, depth, on_value, off_value, axis=axis), to=ir.DataType.BOOL)
    values = op.Concat(op.Reshape(off_value, [1]), op.Reshape(on_value, [1]), axis=0)
    return op.OneHot(outside, depth, values, axis=axis)


@rule("ReverseV2")
def reverse_v2(op, tensor, axis: Ints):
    n = len(axis)
    return op.Slice(tensor, [MOST] * n, [LEAST] * n, list(axis), [-1] * n) if n else tensor


@rule("ReverseSequence")
def reverse_sequence(op, input, seq_lengths, *, seq_dim, batch_dim=0):
    if {seq_dim, batch_dim} != {0, 1}:
        raise Unsupported(f"seq_dim={seq_dim} with batch_dim={batch_dim}")
    return op.ReverseSequence(input, int64(op, seq_lengths), time_axis=seq_dim, batch_axis=batch_dim)


@rule("Where")
def where(op, input):
    return op.Transpose(op.NonZero(input), perm=[1, 0])


def _segments(name, reduction, start):
    @rule(name)
    def segments(op, data, segment_ids, num_segments):
        """Negative ids are dropped: their rows go to an extra segment, which is removed."""
        count = op.Reshape(int64(op, num_segments), [1])
        ids = int64(op, segment_ids)
        ids = op.Where(op.Less(ids, 0), op.Reshape(count, []), ids)
        inner = op.Shape(data, start=rank(segment_ids))
        base = np.array(start(data.dtype.numpy()), data.dtype.numpy())
        buffer = op.Expand(base, op.Concat(op.Add(count, 1), inner, axis=0))
        filled = op.ScatterND(buffer, op.Unsqueeze(ids, [-1]), data, reduction=reduction)
        return op.Slice(filled, [0], count, [0])


def _lowest(dtype):
    return np.iinfo(dtype).min if dtype.kind in "iu" else np.finfo(dtype).min


def _highest(dtype):
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.finfo(dtype).max


_segments("UnsortedSegmentSum", "add", lambda dtype: 0)
_segments("UnsortedSegmentProd", "mul", lambda dtype: 1)
_segments("UnsortedSegmentMax", "max", lambda dtype: _lowest(np.dtype(dtype)))
_segments("UnsortedSegmentMin", "min", lambda dtype: _highest(np.dtype(dtype)))


@rule("SegmentSum")
def segment_sum(op, data, segment_ids):
    """Sorted ids; the last one determines the number of segments."""
    segment_ids.meta[SORTED] = True
    ids = int64(op, segment_ids)
    count = op.Add(op.Gather(ids, np.array([-1])), 1)
    buffer = op.Expand(np.zeros((), data.dtype.numpy()), op.Concat(count, op.Shape(data, start=1), axis=0))
    return op.ScatterND(buffer, op.Unsqueeze(ids, [-1]), data, reduction="add")


@rule("Bucketize")
def bucketize(op, input, *, boundaries):
    """The number of boundaries that an element reaches; NaN reaches all."""
    x = input if input.dtype.is_floating_point() else op.Cast(input, to=ir.DataType.FLOAT)
    reached = op.Not(op.Less(op.Unsqueeze(x, [-1]), np.array(boundaries, np.float32).astype(x.dtype.numpy())))
    return op.ReduceSum(op.Cast(reached, to=ir.DataType.INT32), [-1], keepdims=0)


@rule("DenseBincount")
def dense_bincount(op, input, size: Int, weights, *, binary_output=False):
    """Counts of 0 .. size - 1 along the last axis; other values are ignored."""
    hit = op.Equal(op.Unsqueeze(int64(op, input), [-1]), np.arange(size))
    counted = op.Cast(hit, to=weights.dtype)
    if binary_output:
        return op.ReduceMax(counted, [-2], keepdims=0)
    if weights.shape is None or not all(isinstance(s, int) for s in weights.shape):
        raise Unsupported("weights of unknown size")
    counted = op.Mul(counted, op.Unsqueeze(weights, [-1])) if 0 not in list(weights.shape) else counted
    return op.ReduceSum(counted, [-2], keepdims=0)


@rule("NonMaxSuppressionV3", limits="one list of boxes")
def non_max_suppression_v3(op, boxes, scores, max_output_size, iou_threshold, score_threshold):
    limit = op.Reshape(int64(op, max_output_size), [1])
    thresholds = [op.Reshape(t, [1]) for t in (iou_threshold, score_threshold)]
    chosen = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), limit, *thresholds)
    return op.Cast(op.Gather(chosen, np.array(2), axis=1), to=ir.DataType.INT32)
