"""Sorting and order statistics."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.reduction import doubling_loop
from onnxbridge.frontends.pytorch.ops.shape import sizes
from onnxbridge.hub.decompositions.linalg import factorizations

D = ir.DataType


@rule("aten::topk")
def topk(op, self, k, dim=-1, largest=True, sorted=True):
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    return op.TopK(self, op.dims([k]), axis=dim, largest=int(largest), sorted=int(sorted), outputs=2)


def sorted_with_indices(op, x, dim, descending):
    """Sorted values and their indices; stable."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    widened = op.Cast(x, to=D.INT32) if x.dtype == D.BOOL else x
    values, positions = op.TopK(widened, op.dims([op.size(x, dim)]), axis=dim, largest=int(descending), outputs=2)
    return (op.Cast(values, to=x.dtype) if widened is not x else values), positions


@rule("aten::sort")
def sort(op, self, dim=-1, descending=False):
    return sorted_with_indices(op, self, dim, descending)


@rule("aten::sort.stable")
def sort_stable(op, self, *, stable=None, dim=-1, descending=False):
    return sorted_with_indices(op, self, dim, descending)


@rule("aten::argsort")
def argsort(op, self, dim=-1, descending=False):
    return sorted_with_indices(op, self, dim, descending)[1]


@rule("aten::argsort.stable")
def argsort_stable(op, self, *, stable=None, dim=-1, descending=False):
    return sorted_with_indices(op, self, dim, descending)[1]


@rule("aten::msort")
def msort(op, self):
    return sorted_with_indices(op, self, 0, False)[0]


@rule("aten::kthvalue")
def kthvalue(op, self, k, dim=-1, keepdim=False):
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    values, positions = sorted_with_indices(op, self, dim, False)
    pick = np.int64(k - 1)
    values, positions = op.Gather(values, pick, axis=dim), op.Gather(positions, pick, axis=dim)
    return (op.Unsqueeze(values, [dim]), op.Unsqueeze(positions, [dim])) if keepdim else (values, positions)


@rule("aten::median.dim")
def median_dim(op, self, dim, keepdim=False):
    size = self.shape[dim] if len(self.shape) else 1
    if is_float(self) or not isinstance(size, int):
        values, positions = _median(op, self, dim)
    else:
        return kthvalue(op, self, (size + 1) // 2, dim, keepdim)
    return (values, positions) if keepdim or not len(self.shape) else (op.Squeeze(values, [dim]), op.Squeeze(positions, [dim]))


def _median(op, x, dim, skip_nan=False):
    """The lower median and its index, with the axis kept; with NaN the result is NaN, unless skipped."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    missing = op.IsNaN(x) if is_float(x) else None
    size = op.size(x, dim)
    without_nan = x if missing is None else op.Where(missing, math.inf, x)
    values, positions = sorted_with_indices(op, without_nan, dim, False)
    if missing is None or not skip_nan:
        half = op.Div(op.Sub(size, 1), 2) if isinstance(size, ir.Value) else np.int64((size - 1) // 2)
        index = op.Expand(half, op.dims([1 if i == dim % len(x.shape) else s for i, s in enumerate(sizes(op, x))]))
    else:
        is_valid = op.ReduceSum(op.Cast(op.Not(missing), to=D.INT64), [dim], keepdims=1)
        index = op.Max(op.Div(op.Sub(is_valid, 1), 2), 0)
    value, position = op.GatherElements(values, index, axis=dim), op.GatherElements(positions, index, axis=dim)
    if missing is None:
        return value, position
    first = op.ArgMax(op.Cast(missing, to=D.INT32), axis=dim, keepdims=1)
    reduce = "ReduceMin" if skip_nan else "ReduceMax"
    is_nan = op.Cast(op.call(reduce, op.Cast(missing, to=D.INT32), [dim], keepdims=1), to=D.BOOL)
    return op.Where(is_nan, math.nan, value), op.Where(is_nan, first, position)


@rule("aten::nanmedian.dim")
def nanmedian_dim(op, self, dim, keepdim=False):
    values, positions = _median(op, self, dim, skip_nan=True)
    return (values, positions) if keepdim or not len(self.shape) else (op.Squeeze(values, [dim]), op.Squeeze(positions, [dim]))


@rule("aten::median")
def median(op, self):
    return op.reshape(_median(op, op.reshape(self, [-1]), 0)[0], [])


@rule("aten::nanmedian")
def nanmedian(op, self):
    return op.reshape(_median(op, op.reshape(self, [-1]), 0, skip_nan=True)[0], [])


def _running_extreme(op, x, dim, largest):
    """The extreme of all elements up to each one, and the index of its last occurrence; NaN propagates."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    size = op.size(x, dim)
    widened = x if x.dtype not in (D.BOOL, D.UINT8, D.INT8, D.INT16) else op.Cast(x, to=D.INT32)
    index_shape = [-1 if i == dim % len(x.shape) else 1 for i in range(len(x.shape))]
    positions = op.Expand(op.reshape(factorizations.arange(op, size), index_shape), op.dims(sizes(op, x)))

    def combine(widened, positions, step, size):
        """Combine each element with the one `step` before it; step and size have the form of Slice's arguments."""
        shifted = op.Sub(size, step) if isinstance(size, ir.Value) else [size[0] - step[0]]
        early, late = (op.Slice(widened, a, b, [dim]) for a, b in (([0], shifted), (step, size)))
        later_wins = op.GreaterOrEqual(late, early) if largest else op.LessOrEqual(late, early)
        if is_float(widened):
            later_wins = op.Or(op.IsNaN(late), op.And(op.Not(op.IsNaN(early)), later_wins))
        for values in (widened, positions):
            chosen = op.Where(later_wins, op.Slice(values, step, size, [dim]), op.Slice(values, [0], shifted, [dim]))
            yield op.Concat(op.Slice(values, [0], step, [dim]), chosen, axis=dim)

    if isinstance(size, int):
        step = 1
        while step < size:
            widened, positions = combine(widened, positions, [step], [size])
            step *= 2
    else:
        widened, positions = doubling_loop(
            op, op.reshape(size, [1]), lambda values, step, size: combine(*values, step, size), widened, positions
        )
    return (op.Cast(widened, to=x.dtype) if widened.dtype != x.dtype else widened), positions


@rule("aten::cummax")
def cummax(op, self, dim):
    return _running_extreme(op, self, dim, largest=True)


@rule("aten::cummin")
def cummin(op, self, dim):
    return _running_extreme(op, self, dim, largest=False)


@rule("aten::mode")
def mode(op, self, dim=-1, keepdim=False):
    """The most frequent element (the smallest of several) and its last index."""
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    axis = dim % len(self.shape)
    order = [*(i for i in range(len(self.shape)) if i != axis), axis]
    x = self if axis == len(self.shape) - 1 else op.Transpose(self, perm=order)
    widened = x if x.dtype in (D.FLOAT, D.DOUBLE, D.INT64) else op.Cast(x, to=D.FLOAT if is_float(x) else D.INT64)
    equal = op.Equal(op.Unsqueeze(widened, [-1]), op.Unsqueeze(widened, [-2]))
    counts = op.ReduceSum(op.Cast(equal, to=D.INT64), [-1], keepdims=0)
    is_most_frequent = op.Equal(counts, op.ReduceMax(counts, [-1], keepdims=1))
    highest = math.inf if is_float(widened) else 2**63 - 1
    value = op.ReduceMin(op.Where(is_most_frequent, widened, highest), [-1], keepdims=1)
    is_valid = op.Cast(op.Equal(widened, value), to=D.INT32)
    position = op.ArgMax(is_valid, axis=-1, keepdims=0, select_last_index=1)
    value = op.Squeeze(cast(op, value, self.dtype), [-1])
    return (op.Unsqueeze(value, [axis]), op.Unsqueeze(position, [axis])) if keepdim else (value, position)
