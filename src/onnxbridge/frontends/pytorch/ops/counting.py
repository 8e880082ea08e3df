"""Counting: unique elements, histograms, segment sums and embedding bags."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float, is_half
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.indexing import compress, scatter_elements
from onnxbridge.frontends.pytorch.ops.reduction import norm_of
from onnxbridge.frontends.pytorch.ops.shape import rank, sizes

D = ir.DataType
_UNIQUE = (D.FLOAT, D.DOUBLE, D.INT64, D.INT8)


def _castable(op, x):
    """x in a dtype for which runtimes implement Unique."""
    return x if x.dtype in _UNIQUE else op.Cast(x, to=D.FLOAT if is_float(x) else D.INT64)


def _unique(op, x, axis):
    values, _, inverse, counts = op.Unique(_castable(op, x), axis=axis, sorted=1, outputs=4)
    return cast(op, values, x.dtype), inverse, counts


@rule("aten::_unique2")
def unique2(op, self, sorted=True, return_inverse=False, return_counts=False):
    values, inverse, counts = _unique(op, self, None)
    empty = op.constant(np.zeros(0, np.int64))
    return values, op.reshape(inverse, sizes(op, self)) if return_inverse else empty, counts if return_counts else empty


@rule("aten::unique_dim")
def unique_dim(op, self, dim, sorted=True, return_inverse=False, return_counts=False):
    return _unique(op, self, dim)


@rule("aten::unique_consecutive")
def unique_consecutive(op, self, return_inverse=False, return_counts=False, dim=None):
    x = op.reshape(self, [-1]) if dim is None else self
    axis = 0 if dim is None else dim
    ends_before, after = op.Slice(x, [0], [-1], [axis]), op.Slice(x, [1], [2**63 - 1], [axis])
    differ = op.Not(op.Equal(ends_before, after))
    others = [i for i in range(rank(x)) if i != axis % rank(x)]
    if others:
        differ = op.Cast(op.ReduceMax(op.Cast(differ, to=D.INT32), others, keepdims=0), to=D.BOOL)
    first = op.Concat(op.constant(np.array([True])), differ, axis=0)
    values = compress(op, x, first, axis)
    inverse = op.Sub(op.CumSum(op.Cast(first, to=D.INT64), np.int64(0)), 1)
    starts = op.reshape(op.NonZero(first), [-1])
    ends = op.Concat(op.Slice(starts, [1], [2**63 - 1]), op.dims([op.size(x, axis)]), axis=0)
    empty = op.constant(np.zeros(0, np.int64))
    inverse = op.reshape(inverse, sizes(op, self)) if dim is None else inverse
    return values, inverse if return_inverse else empty, op.Sub(ends, starts) if return_counts else empty


def weighted_bincount(op, positions, weights, bins, inside=None):
    """Sum of the weights per bin index; elements outside of `inside` are ignored."""
    if inside is not None:
        weights = op.Where(inside, weights, 0)
        positions = op.Where(inside, positions, 0)
    start = op.Expand(op.constant(np.zeros(1, weights.dtype.numpy())), op.dims([bins]))
    return scatter_elements(op, start, 0, positions, weights, "add")


@rule("aten::bincount")
def bincount(op, self, weights=None, minlength=0):
    if 0 in self.shape:
        return op.Expand(op.constant(np.zeros(1, np.int64 if weights is None else weights.dtype.numpy())), op.dims([minlength]))
    x = cast(op, self, D.INT64)
    count = op.Max(op.Add(op.ReduceMax(x, keepdims=0), 1), minlength)
    if weights is None:
        return weighted_bincount(op, x, op.Expand(np.int64(1), op.Shape(x)), count)
    return weighted_bincount(op, x, weights if weights.dtype == D.FLOAT else cast(op, weights, D.DOUBLE), count)


def _range(op, x, low, high):
    """The range of a histogram, as values: the extremes of the data if both bounds are 0."""
    if low != high:
        return tuple(op.constant(np.asarray(v, x.dtype.numpy())) for v in (low, high))
    if low == high == 0 and 0 not in x.shape:
        low, high = op.ReduceMin(x, keepdims=0), op.ReduceMax(x, keepdims=0)
    else:
        low = high = op.constant(np.asarray(low, x.dtype.numpy()))
    return low, high


@rule("aten::histc")
def histc(op, self, bins=100, min=0, max=0):
    x = op.reshape(self, [-1])
    low, high = _range(op, x, min, max)
    same = op.Equal(low, high)
    low, high = op.Where(same, op.Sub(low, 1), low), op.Where(same, op.Add(high, 1), high)
    scale = op.Div(op.CastLike(bins, x), op.Sub(high, low))
    positions = op.Floor(op.Mul(op.Sub(x, low), scale))
    inside = op.And(op.GreaterOrEqual(x, low), op.LessOrEqual(x, high))
    positions = op.Cast(op.Min(op.Where(inside, positions, 0.0), float(bins - 1)), to=D.INT64)
    return weighted_bincount(op, positions, op.Expand(op.CastLike(1, x), op.Shape(x)), bins, inside)


def _edges(op, x, bins, low, high):
    """bins + 1 equidistant edges; the second half is computed from the upper end."""
    same = op.Equal(low, high)
    low, high = op.Where(same, op.Sub(low, 0.5), low), op.Where(same, op.Add(high, 0.5), high)
    step = op.Div(op.Sub(high, low), float(bins))
    i = np.arange(bins + 1)
    near = op.Add(low, op.Mul(step, i.astype(x.dtype.numpy())))
    far = op.Sub(high, op.Mul(step, (bins - i).astype(x.dtype.numpy())))
    return op.Where(i < (bins + 1) // 2, near, far)


def _bin_index(op, x, edges):
    """The bin index of each element, and whether it is in any bin; the last bin includes its upper edge."""
    bins = edges.shape[0] - 1
    above = op.Cast(op.GreaterOrEqual(op.Unsqueeze(x, [-1]), edges), to=D.INT64)
    positions = op.Sub(op.ReduceSum(above, [-1], keepdims=0), 1)
    last = op.Gather(edges, np.int64(-1))
    inside = op.And(op.GreaterOrEqual(x, op.Gather(edges, np.int64(0))), op.LessOrEqual(x, last))
    return op.Min(positions, bins - 1), inside


def _weights(op, x, weight):
    n = op.dims([op.size(x, 0)])
    return op.Expand(op.CastLike(1, x), n) if weight is None else op.reshape(weight, [-1])


def _density(op, hist, *widths):
    """Normalize counts by their sum and the volumes of the bins."""
    hist = op.Div(hist, op.ReduceSum(hist, keepdims=0))
    for axis, edges in enumerate(widths):
        width = op.Sub(op.Slice(edges, [1], [2**63 - 1]), op.Slice(edges, [0], [-1]))
        hist = op.Div(hist, op.reshape(width, [-1 if i == axis else 1 for i in range(len(widths))]))
    return hist


@rule("aten::histogram.bins_tensor")
def histogram_edges(op, self, bins, *, weight=None, density=False):
    x = op.reshape(self, [-1])
    positions, inside = _bin_index(op, x, bins)
    hist = weighted_bincount(op, positions, _weights(op, x, weight), bins.shape[0] - 1, inside)
    return _density(op, hist, bins) if density else hist, bins


@rule("aten::histogram.bin_ct")
def histogram(op, self, bins=100, *, range=None, weight=None, density=False):
    x = op.reshape(self, [-1])
    low, high = _range(op, x, *(range or (0, 0)))
    return histogram_edges(op, self, _edges(op, x, bins, low, high), weight=weight, density=density)


def _histogram_of_points(op, points, edges, weight, density):
    total, all_inside = None, None
    for i, axis_edges in enumerate(edges):
        positions, inside = _bin_index(op, op.Gather(points, np.int64(i), axis=1), axis_edges)
        total = positions if total is None else op.Add(op.Mul(total, axis_edges.shape[0] - 1), positions)
        all_inside = inside if all_inside is None else op.And(all_inside, inside)
    bins = [e.shape[0] - 1 for e in edges]
    hist = op.reshape(weighted_bincount(op, total, _weights(op, points, weight), math.prod(bins), all_inside), bins)
    return _density(op, hist, *edges) if density else hist


@rule("aten::histogramdd")
def histogramdd(op, self, bins, range=None, weight=None, density=False):
    points = op.reshape(self, [-1, len(bins)])
    edges = []
    for i, count in enumerate(bins):
        column = op.Gather(points, np.int64(i), axis=1)
        ends = range[2 * i : 2 * i + 2] if range else (0, 0)
        edges.append(_edges(op, column, count, *_range(op, column, *ends)))
    return _histogram_of_points(op, points, edges, weight, density), edges


@rule("aten::histogramdd.int_bins")
def histogramdd_equal(op, self, bins, range=None, weight=None, density=False):
    return histogramdd(op, self, [bins] * self.shape[-1], range, weight, density)


@rule("aten::histogramdd.TensorList_bins")
def histogramdd_edges(op, self, bins, range=None, weight=None, density=False):
    points = op.reshape(self, [-1, len(bins)])
    return _histogram_of_points(op, points, bins, weight, density), list(bins)


_NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE = {"sum": "ReduceSum", "mean": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@rule("aten::segment_reduce")
def segment_reduce(op, data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    if indices is not None or lengths is None and offsets is None:
        raise Unsupported("segments specified by indices")
    if offsets is None:
        ends = op.CumSum(cast(op, lengths, D.INT64), np.int64(-1))
        starts = op.Sub(ends, cast(op, lengths, D.INT64))
    else:
        offsets = cast(op, offsets, D.INT64)
        starts, ends = op.Slice(offsets, [0], [-1], [-1]), op.Slice(offsets, [1], [2**63 - 1], [-1])
    size, lead = op.size(data, axis), rank(starts)
    positions = op.Range(np.int64(0), size, np.int64(1)) if isinstance(size, ir.Value) else np.arange(size, dtype=np.int64)
    starts, ends = op.Unsqueeze(starts, [-1]), op.Unsqueeze(ends, [-1])
    member = op.And(op.LessOrEqual(starts, positions), op.Less(positions, ends))  # [..., segment, element]
    member = op.Unsqueeze(member, list(range(lead + 1, lead + 1 + rank(data) - lead))) if rank(data) > lead else member
    start = _NEUTRAL[reduce] if initial is None else float(initial)
    candidates = op.Where(member, op.Unsqueeze(data, [lead - 1]), _NEUTRAL[reduce])
    y = op.call(_REDUCE[reduce], candidates, [lead], keepdims=0)
    join = {"sum": "Add", "mean": "Add", "prod": "Mul", "max": "Max", "min": "Min"}[reduce]
    y = y if initial is None else op.call(join, y, start)
    if reduce != "mean":
        return y
    count = op.ReduceSum(op.Cast(member, to=data.dtype), [lead], keepdims=0)
    empty = op.Equal(count, 0.0)
    return op.Where(empty, math.nan if initial is None else start, op.Div(y, op.Where(empty, 1.0, count)))


@rule("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(op, weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False, per_sample_weights=None,
                  include_last_offset=False, padding_idx=-1):  # fmt: skip
    bags, dtype = op.size(offsets, 0), weight.dtype
    if include_last_offset:
        bags = op.Sub(bags, 1) if isinstance(bags, ir.Value) else bags - 1
        offsets = op.Slice(offsets, [0], [-1])
    offsets, indices = cast(op, offsets, D.INT64), cast(op, indices, D.INT64)
    size = op.size(indices, 0)
    positions = op.Range(np.int64(0), size, np.int64(1)) if isinstance(size, ir.Value) else np.arange(size, dtype=np.int64)
    starts_before = op.LessOrEqual(op.Unsqueeze(offsets, [0]), op.Unsqueeze(positions, [1]))
    bag = op.Sub(op.ReduceSum(op.Cast(starts_before, to=D.INT64), [1], keepdims=1), 1)
    rows = op.Gather(weight, indices)
    used = op.Not(op.Equal(indices, padding_idx)) if padding_idx >= 0 else op.GreaterOrEqual(indices, 0)
    used = op.Unsqueeze(used, [1])
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(cast(op, per_sample_weights, weight.dtype), [1]))
    initial_value = -math.inf if mode == 2 else 0.0
    weight, rows = (op.Cast(v, to=D.FLOAT) if is_half(v) else v for v in (weight, rows))  # runtimes lack half reductions
    shape = op.dims([bags, op.size(weight, 1)])
    start = op.Expand(op.CastLike(initial_value, weight), shape)
    y = op.ScatterND(start, bag, op.Where(used, rows, initial_value), reduction="max" if mode == 2 else "add")
    if mode == 2:
        y = op.Where(op.Equal(y, -math.inf), 0.0, y)
    elif mode == 1:
        ones = op.Expand(op.CastLike(0.0, weight), op.dims([bags, 1]))
        count = op.ScatterND(ones, bag, op.Cast(used, to=weight.dtype), reduction="add")
        y = op.Div(y, op.Max(count, 1.0))
    return cast(op, y, dtype), None, None, None  # the other results are only used for gradients


@rule("aten::_cdist_forward")
def cdist_forward(op, x1, x2, p, compute_mode):
    distance = op.Abs(op.Sub(op.Unsqueeze(x1, [-2]), op.Unsqueeze(x2, [-3])))
    if p == 0:
        return op.ReduceSum(op.Cast(op.Not(op.Equal(distance, 0.0)), to=x1.dtype), [-1], keepdims=0)
    if p in (1, math.inf):
        return op.call("ReduceSum" if p == 1 else "ReduceMax", distance, [-1], keepdims=0)
    if p == 2:
        return op.ReduceL2(distance, [-1], keepdims=0)
    return op.Pow(op.ReduceSum(op.Pow(distance, float(p)), [-1], keepdims=0), 1.0 / p)


@rule("aten::embedding_renorm")
def embedding_renorm(op, self, indices, max_norm, norm_type):
    """Scale the rows that are looked up to at most the maximum norm."""
    lengths = norm_of(op, self, norm_type, [1], True)
    shrink = op.Div(op.CastLike(max_norm, self), op.Add(lengths, 1e-7))
    used = op.Expand(op.constant(np.zeros(1, np.int32)), op.dims([op.size(self, 0)]))
    flat = op.reshape(cast(op, indices, D.INT64), [-1])
    used = op.ScatterElements(used, flat, op.Expand(np.int32(1), op.Shape(flat)))
    scale = op.And(op.Unsqueeze(op.Cast(used, to=D.BOOL), [1]), op.Greater(lengths, float(max_norm)))
    return op.Mul(self, op.Where(scale, shrink, 1.0))


@rule("aten::repeat_interleave.Tensor")
def repeat_interleave(op, repeats, *, output_size=None):
    """The index of each element, repeated as often as `repeats` says."""
    ends = op.CumSum(cast(op, repeats, D.INT64), np.int64(0))
    total = op.Gather(ends, np.int64(-1)) if output_size is None else op.dims([output_size])
    positions = op.Range(np.int64(0), op.reshape(total, []), np.int64(1))
    ends_before = op.LessOrEqual(op.Unsqueeze(ends, [0]), op.Unsqueeze(positions, [1]))
    return op.ReduceSum(op.Cast(ends_before, to=D.INT64), [1], keepdims=0)
