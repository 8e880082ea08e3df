"""Counting, searching in sorted values, unique elements, and splitting rows by a value."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import MOST, int64, known_ints
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import SORTED, cast, rank

D = ir.DataType
INT64 = D.INT64


@rule("Bucketize")
def bucketize(op, input, *, boundaries):
    """The number of boundaries that an element reaches; NaN reaches all."""
    x = input if input.dtype.is_floating_point() else op.Cast(input, to=D.FLOAT)
    reached = op.Not(op.Less(op.Unsqueeze(x, [-1]), np.array(boundaries, np.float32).astype(x.dtype.numpy())))
    return op.ReduceSum(op.Cast(reached, to=D.INT32), [-1 if input.shape is None else rank(input)], keepdims=0)


def _weights_or_ones(op, weights, like):
    """The weights, flat; ones where there are none, which is known only when the model runs if their size is dynamic."""
    n = op.Size(like)
    ones = op.Expand(np.array(1, weights.dtype.numpy()), op.Reshape(n, [1]))
    known = list(weights.shape) if weights.shape is not None else [None]
    flat = op.Reshape(weights, [-1])
    if 0 in known:
        return ones
    if all(isinstance(d, int) for d in known):
        return flat
    return op.Slice(op.Concat(flat, ones, axis=0), [0], op.Reshape(n, [1]), [0])


def _counted(op, values, size, weights, binary_output):
    """The sum of the weights of 0 .. size - 1 along the last axis of int64 values; other values are ignored."""
    size = op.Reshape(int64(op, size), [1])
    inside = op.And(op.GreaterOrEqual(values, 0), op.Less(values, op.Reshape(size, [])))
    positions = op.Where(inside, values, op.Reshape(size, []))  # an extra bin, which is removed
    zero, one = (np.array(v, weights.dtype.numpy()) for v in (0, 1))
    bins = op.Expand(zero, op.Concat(op.Shape(values, end=-1), op.Add(size, 1), axis=0))
    amounts = op.Expand(one, op.Shape(values)) if binary_output else _weights_or_ones(op, weights, values)
    amounts = op.Reshape(amounts, op.Shape(values), allowzero=1)
    reduction = "max" if binary_output else "add"
    filled = op.ScatterElements(bins, positions, amounts, axis=rank(values) - 1, reduction=reduction)
    return op.Slice(filled, [0], size, [rank(values) - 1])


@rule("DenseBincount")
def dense_bincount(op, input, size, weights, *, binary_output=False):
    values = int64(op, input)
    return _counted(op, values if input.shape is None or rank(input) else op.Reshape(values, [1]), size, weights, binary_output)


@rule("Bincount")
def bincount(op, arr, size, weights):
    return _counted(op, op.Reshape(int64(op, arr), [-1]), size, weights, False)


@rule("HistogramFixedWidth")
def histogram_fixed_width(op, values, value_range, nbins, *, dtype=D.INT32):
    """Values outside of the range count in the first and in the last bin."""
    low, high = (op.Gather(value_range, np.int64(i)) for i in (0, 1))
    bins = op.Reshape(int64(op, nbins), [])
    step = op.Div(op.Cast(op.Sub(high, low), to=D.DOUBLE), op.Cast(bins, to=D.DOUBLE))
    above = op.Cast(op.Sub(op.Max(op.Reshape(values, [-1]), low), low), to=D.DOUBLE)
    index = op.Min(op.Div(above, step), op.Cast(op.Sub(bins, 1), to=D.DOUBLE))
    zeros = op.constant(np.zeros(0, dtype.numpy()))
    return _counted(op, op.Cast(index, to=INT64), bins, zeros, False)


def _search(name, comparison):
    @rule(name)
    def search(op, sorted_inputs, values, *, out_type=D.INT32):
        sorted_inputs.meta[SORTED] = True
        before = op.call(comparison, op.Unsqueeze(sorted_inputs, [-2]), op.Unsqueeze(values, [-1]))
        return op.ReduceSum(op.Cast(before, to=out_type), [rank(values)], keepdims=0)


_search("LowerBound", "Less")
_search("UpperBound", "LessOrEqual")


@rule("InTopKV2")
def in_top_k_v2(op, predictions, targets, k):
    """Whether fewer than k classes are ahead of the target; false where a prediction is not finite."""
    classes = op.size(predictions, 1)
    targets = int64(op, targets)
    inside = op.And(op.GreaterOrEqual(targets, 0), op.Less(targets, classes))
    at = op.Unsqueeze(op.Where(inside, targets, 0), [1])
    ahead = op.Greater(predictions, op.GatherElements(predictions, at, axis=1))
    count = op.ReduceSum(op.Cast(ahead, to=INT64), [1], keepdims=0)
    bad = op.Or(op.IsInf(predictions), op.IsNaN(predictions))
    finite = op.Equal(op.ReduceSum(op.Cast(bad, to=INT64), [1], keepdims=0), 0)
    return op.And(op.And(inside, finite), op.Less(count, int64(op, k)))


@rule("InTopK")
def in_top_k(op, predictions, targets, *, k):
    return in_top_k_v2(op, predictions, targets, op.constant(np.int64(k)))


@rule("NthElement")
def nth_element(op, input, n, *, reverse=False):
    k = op.Reshape(op.Add(int64(op, n), 1), [1])
    values, _ = op.TopK(input, k, axis=-1, largest=int(reverse), outputs=2)
    return op.Gather(values, np.int64(-1), axis=-1)


_UNIQUE = (D.FLOAT, D.DOUBLE, D.INT64, D.INT8, D.STRING)


def _unique(op, x, axis, out_idx):
    """The distinct elements in the order of their first occurrence, their index for each element, and their counts."""
    keys = x  # in a dtype for which runtimes implement Unique
    if x.dtype not in _UNIQUE:
        keys = op.Cast(x, to=D.FLOAT if x.dtype.is_floating_point() else INT64)
    _, first, index, counts = op.Unique(keys, axis=axis, sorted=0, outputs=4)
    values = op.Gather(x, first, axis=axis or 0)
    return values, cast(op, index, out_idx), cast(op, counts, out_idx)


@rule("Unique")
def unique(op, x, *, out_idx=D.INT32):
    return _unique(op, x, None, out_idx)[:2]


@rule("UniqueWithCounts")
def unique_with_counts(op, x, *, out_idx=D.INT32):
    return _unique(op, x, None, out_idx)


def _axis(x, axis):
    axes = known_ints(axis)
    if axes is None and rank(x) > 1:
        raise Unsupported("an axis known only when the model runs", hint="make it a constant")
    return axes[0] % rank(x) if axes else None if rank(x) == 1 else 0


@rule("UniqueV2")
def unique_v2(op, x, axis, *, out_idx=D.INT32):
    return _unique(op, x, _axis(x, axis), out_idx)[:2]


@rule("UniqueWithCountsV2")
def unique_with_counts_v2(op, x, axis, *, out_idx=D.INT32):
    return _unique(op, x, _axis(x, axis), out_idx)


@rule("ListDiff")
def list_diff(op, x, y, *, out_idx=D.INT32):
    equal = op.Cast(op.Equal(op.Unsqueeze(x, [1]), op.Unsqueeze(y, [0])), to=INT64)
    only = op.Equal(op.ReduceSum(equal, [1], keepdims=0), 0)
    index = op.Reshape(op.NonZero(only), [-1])
    return op.Gather(x, index), cast(op, index, out_idx)


@rule("DynamicPartition")
def dynamic_partition(op, data, partitions, *, num_partitions):
    ids = op.Reshape(int64(op, partitions), [-1])
    rows = data if rank(partitions) == 1 else _rows(op, data, partitions)
    return tuple(op.Compress(rows, op.Equal(ids, i), axis=0) for i in range(num_partitions))


def _rows(op, data, indices):
    """The data with the axes that the indices have as one."""
    inner = op.Shape(data, start=rank(indices))
    return op.Reshape(data, op.Concat(op.Reshape(op.Size(indices), [1]), inner, axis=0), allowzero=1)


@rule("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(op, indices, data):
    """Where an index occurs more than once, the last row is taken."""
    index = _joined(op, [op.Reshape(int64(op, i), [-1]) for i in indices])
    rows = _joined(op, [_rows(op, d, i) for d, i in zip(data, indices, strict=True)])
    count = op.Add(op.ReduceMax(op.Concat(index, [-1], axis=0), keepdims=1), 1)
    last = op.ScatterElements(op.Expand(np.int64(0), count), index, arange(op, op.size(rows, 0)), axis=0, reduction="max")
    return op.Gather(rows, last, axis=0)


def _joined(op, parts):
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


@rule("CTCGreedyDecoder")
def ctc_greedy_decoder(op, inputs, sequence_length, *, merge_repeated=False, blank_index=-1):
    """The most likely class of each step, without blanks; the result is a sparse [batch, time] matrix."""
    best = op.Transpose(op.ArgMax(inputs, axis=2, keepdims=0), perm=[1, 0])
    classes, steps = op.size(inputs, 2), op.size(inputs, 0)
    blank = sizes.add(op, classes, blank_index) if blank_index < 0 else blank_index
    inside = op.Less(arange(op, steps), op.Unsqueeze(int64(op, sequence_length), [1]))
    used = op.And(inside, op.Not(op.Equal(best, blank)))
    if merge_repeated:
        before = op.Pad(op.Slice(best, [0], [-1], [1]), [0, 1, 0, 0], np.int64(-1))
        used = op.And(used, op.Not(op.Equal(best, before)))
    at = op.Transpose(op.NonZero(used), perm=[1, 0])
    ends = op.CumSum(op.Cast(used, to=INT64), np.int64(1))
    column = op.Sub(op.GatherND(ends, at), 1)
    indices = op.Concat(op.Slice(at, [0], [1], [1]), op.Unsqueeze(column, [1]), axis=1)
    longest = op.ReduceMax(op.Slice(ends, [-1], [MOST], [1]), keepdims=0)
    peaks = op.Transpose(op.ReduceMax(inputs, [2], keepdims=0), perm=[1, 0])
    likelihood = op.ReduceSum(op.Where(inside, peaks, np.array(0, inputs.dtype.numpy())), [1], keepdims=1)
    return indices, op.GatherND(best, at), op.dims([op.size(inputs, 1), longest]), op.Neg(likelihood)
