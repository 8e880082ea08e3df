"""Sorting, and what lies at a place in the order."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.reduction import in_steps
from onnxbridge.frontends.pytorch.ops.shape import sizes
from onnxbridge.hub.decompositions.linalg import factorizations

D = ir.DataType


@rule("aten::topk")
def topk(op, self, k, dim=-1, largest=True, sorted=True):
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    return op.TopK(self, op.dims([k]), axis=dim, largest=int(largest), sorted=int(sorted), outputs=2)


def ordered(op, x, dim, descending):
    """Values and places in order, equal elements in their own."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    wide = op.Cast(x, to=D.INT32) if x.dtype == D.BOOL else x
    values, places = op.TopK(wide, op.dims([op.size(x, dim)]), axis=dim, largest=int(descending), outputs=2)
    return (op.Cast(values, to=x.dtype) if wide is not x else values), places


@rule("aten::sort")
def sort(op, self, dim=-1, descending=False):
    return ordered(op, self, dim, descending)


@rule("aten::sort.stable")
def sort_stable(op, self, *, stable=None, dim=-1, descending=False):
    return ordered(op, self, dim, descending)


@rule("aten::argsort")
def argsort(op, self, dim=-1, descending=False):
    return ordered(op, self, dim, descending)[1]


@rule("aten::argsort.stable")
def argsort_stable(op, self, *, stable=None, dim=-1, descending=False):
    return ordered(op, self, dim, descending)[1]


@rule("aten::msort")
def msort(op, self):
    return ordered(op, self, 0, False)[0]


@rule("aten::kthvalue")
def kthvalue(op, self, k, dim=-1, keepdim=False):
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    values, places = ordered(op, self, dim, False)
    pick = np.int64(k - 1)
    values, places = op.Gather(values, pick, axis=dim), op.Gather(places, pick, axis=dim)
    return (op.Unsqueeze(values, [dim]), op.Unsqueeze(places, [dim])) if keepdim else (values, places)


@rule("aten::median.dim")
def median_dim(op, self, dim, keepdim=False):
    size = self.shape[dim] if len(self.shape) else 1
    if is_float(self) or not isinstance(size, int):
        values, places = _median(op, self, dim)
    else:
        return kthvalue(op, self, (size + 1) // 2, dim, keepdim)
    return (values, places) if keepdim or not len(self.shape) else (op.Squeeze(values, [dim]), op.Squeeze(places, [dim]))


def _median(op, x, dim, skip_nan=False):
    """The lower of the middle elements and its place, the axis kept: NaN where there is one, or among the rest."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    missing = op.IsNaN(x) if is_float(x) else None
    size = op.size(x, dim)
    shown = x if missing is None else op.Where(missing, math.inf, x)
    values, places = ordered(op, shown, dim, False)
    if missing is None or not skip_nan:
        half = op.Div(op.Sub(size, 1), 2) if isinstance(size, ir.Value) else np.int64((size - 1) // 2)
        index = op.Expand(half, op.dims([1 if i == dim % len(x.shape) else s for i, s in enumerate(sizes(op, x))]))
    else:
        there = op.ReduceSum(op.Cast(op.Not(missing), to=D.INT64), [dim], keepdims=1)
        index = op.Max(op.Div(op.Sub(there, 1), 2), 0)
    value, place = op.GatherElements(values, index, axis=dim), op.GatherElements(places, index, axis=dim)
    if missing is None:
        return value, place
    first = op.ArgMax(op.Cast(missing, to=D.INT32), axis=dim, keepdims=1)
    reduce = "ReduceMin" if skip_nan else "ReduceMax"
    broken = op.Cast(op.call(reduce, op.Cast(missing, to=D.INT32), [dim], keepdims=1), to=D.BOOL)
    return op.Where(broken, math.nan, value), op.Where(broken, first, place)


@rule("aten::nanmedian.dim")
def nanmedian_dim(op, self, dim, keepdim=False):
    values, places = _median(op, self, dim, skip_nan=True)
    return (values, places) if keepdim or not len(self.shape) else (op.Squeeze(values, [dim]), op.Squeeze(places, [dim]))


@rule("aten::median")
def median(op, self):
    return op.reshape(_median(op, op.reshape(self, [-1]), 0)[0], [])


@rule("aten::nanmedian")
def nanmedian(op, self):
    return op.reshape(_median(op, op.reshape(self, [-1]), 0, skip_nan=True)[0], [])


def _running_extreme(op, x, dim, largest):
    """The extreme of all elements up to each one, and the place of its last occurrence; a NaN stays."""
    if len(x.shape) == 0:
        return x, op.constant(np.int64(0))
    size = op.size(x, dim)
    wide = x if x.dtype not in (D.BOOL, D.UINT8, D.INT8, D.INT16) else op.Cast(x, to=D.INT32)
    upright = [-1 if i == dim % len(x.shape) else 1 for i in range(len(x.shape))]
    places = op.Expand(op.reshape(factorizations.count(op, size), upright), op.dims(sizes(op, x)))

    def joined(wide, places, step, size):
        """Each with what lies `step` before it; step and size as Slice takes them."""
        left = op.Sub(size, step) if isinstance(size, ir.Value) else [size[0] - step[0]]
        early, late = (op.Slice(wide, a, b, [dim]) for a, b in (([0], left), (step, size)))
        taken = op.GreaterOrEqual(late, early) if largest else op.LessOrEqual(late, early)
        if is_float(wide):
            taken = op.Or(op.IsNaN(late), op.And(op.Not(op.IsNaN(early)), taken))
        for values in (wide, places):
            chosen = op.Where(taken, op.Slice(values, step, size, [dim]), op.Slice(values, [0], left, [dim]))
            yield op.Concat(op.Slice(values, [0], step, [dim]), chosen, axis=dim)

    if isinstance(size, int):
        step = 1
        while step < size:
            wide, places = joined(wide, places, [step], [size])
            step *= 2
    else:
        wide, places = in_steps(op, op.reshape(size, [1]), lambda held, step, size: joined(*held, step, size), wide, places)
    return (op.Cast(wide, to=x.dtype) if wide.dtype != x.dtype else wide), places


@rule("aten::cummax")
def cummax(op, self, dim):
    return _running_extreme(op, self, dim, largest=True)


@rule("aten::cummin")
def cummin(op, self, dim):
    return _running_extreme(op, self, dim, largest=False)


@rule("aten::mode")
def mode(op, self, dim=-1, keepdim=False):
    """The most frequent element, the smallest of several, and where it comes last."""
    if len(self.shape) == 0:
        return self, op.constant(np.int64(0))
    axis = dim % len(self.shape)
    order = [*(i for i in range(len(self.shape)) if i != axis), axis]
    x = self if axis == len(self.shape) - 1 else op.Transpose(self, perm=order)
    wide = x if x.dtype in (D.FLOAT, D.DOUBLE, D.INT64) else op.Cast(x, to=D.FLOAT if is_float(x) else D.INT64)
    same = op.Equal(op.Unsqueeze(wide, [-1]), op.Unsqueeze(wide, [-2]))
    counts = op.ReduceSum(op.Cast(same, to=D.INT64), [-1], keepdims=0)
    often = op.Equal(counts, op.ReduceMax(counts, [-1], keepdims=1))
    highest = math.inf if is_float(wide) else 2**63 - 1
    value = op.ReduceMin(op.Where(often, wide, highest), [-1], keepdims=1)
    there = op.Cast(op.Equal(wide, value), to=D.INT32)
    place = op.ArgMax(there, axis=-1, keepdims=0, select_last_index=1)
    value = op.Squeeze(cast(op, value, self.dtype), [-1])
    return (op.Unsqueeze(value, [axis]), op.Unsqueeze(place, [axis])) if keepdim else (value, place)
