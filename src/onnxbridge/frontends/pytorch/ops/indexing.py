"""Indexing: slices, indices and masks, for reading and writing."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast, category, is_half, promote
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.reduction import shape_value
from onnxbridge.frontends.pytorch.ops.shape import INT64_MAX, axis_of, rank, sizes
from onnxbridge.hub.ir.values import SORTED

D = ir.DataType


@rule("aten::slice.Tensor", "aten::slice_copy.Tensor")
def slice_(op, self, dim=0, start=None, end=None, step=1):
    start, end = 0 if start is None else start, INT64_MAX if end is None else end
    if all(isinstance(v, int) for v in (start, end, step)) and start == 0 and step == 1 and end == INT64_MAX:
        return self
    return op.Slice(self, op.dims([start]), op.dims([end]), [dim], op.dims([step]))


@rule("aten::narrow")
def narrow(op, self, dim, start, length):
    if isinstance(start, int) and start < 0:
        start = op.Add(op.size(self, dim), start) if isinstance(op.size(self, dim), ir.Value) else op.size(self, dim) + start
    end = start + length if isinstance(start, int) and isinstance(length, int) else op.Add(start, length)
    return op.Slice(self, op.dims([start]), op.dims([end]), [dim])


@rule("aten::select.int", "aten::select_copy.int")
def select(op, self, dim, index):
    index = index if isinstance(index, ir.Value) else np.int64(index)
    return op.Gather(self, index, axis=dim)


@rule("aten::index_select")
def index_select(op, self, dim, index):
    if rank(self) == 0:
        return self
    return op.Gather(self, index if rank(index) else op.Unsqueeze(index, [0]), axis=dim)


@rule("aten::gather")
def gather(op, self, dim, index, *, sparse_grad=False):
    if rank(self) == 0 or rank(index) == 0:
        flat = op.Gather(op.reshape(self, [-1]), op.reshape(index, [-1]))
        return op.reshape(flat, sizes(op, index))
    return op.GatherElements(self, index, axis=dim)


@rule("aten::take")
def take(op, self, index):
    return op.Gather(op.reshape(self, [-1]), index)


@rule("aten::take_along_dim")
def take_along_dim(op, self, indices, dim=None):
    if dim is None:
        return op.GatherElements(op.reshape(self, [-1]), op.reshape(indices, [-1]), axis=0)
    axis = axis_of(self, dim)
    a = [1 if i == axis else s for i, s in enumerate(sizes(op, indices))]
    b = [1 if i == axis else s for i, s in enumerate(sizes(op, self))]
    return op.GatherElements(op.Expand(self, op.dims(a)), op.Expand(indices, op.dims(b)), axis=axis)


@rule("aten::embedding")
def embedding(op, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return op.Gather(weight, indices)


@rule("aten::masked_fill.Scalar", "aten::masked_fill.Tensor")
def masked_fill(op, self, mask, value):
    return op.Where(mask, cast(op, value, self.dtype), self)


@rule("aten::where.self", "aten::where.ScalarSelf", "aten::where.ScalarOther", "aten::where.Scalar")
def where(op, condition, self, other):
    a, b = promote(op, self, other)
    return op.Where(cast(op, condition, D.BOOL), a, b)


@rule("aten::nonzero")
def nonzero(op, self):
    x = self if rank(self) else op.reshape(self, [1])
    found = op.Transpose(op.NonZero(cast(op, x, D.BOOL)), perm=[1, 0])
    return found if rank(self) else op.Slice(found, [0], [0], [1])


@rule("aten::nonzero_numpy", "aten::where")
def where_(op, *condition):
    x = condition[0]
    found = op.NonZero(cast(op, x if rank(x) else op.reshape(x, [1]), D.BOOL))
    return tuple(op.Gather(found, np.int64(i), axis=0) for i in range(max(1, rank(x))))


@rule("aten::argwhere")
def argwhere(op, self):
    return nonzero(op, self)


@rule("aten::masked_select")
def masked_select(op, self, mask):
    shape = op.Shape(op.And(op.Expand(False, shape_value(op, self)), mask))
    data, mask = op.Expand(self, shape), op.Expand(mask, shape)
    return compress(op, op.reshape(data, [-1]), op.reshape(mask, [-1]), 0)


def compress(op, x, mask, axis):
    """The slices of x along an axis where a boolean vector is true."""
    if x.dtype == D.BFLOAT16:  # not supported by Compress
        return op.Gather(x, op.reshape(op.NonZero(mask), [-1]), axis=axis)
    return op.Compress(x, mask, axis=axis)


def integer_indices(op, x, indices):
    """(axis, index) for each indexed axis; masks are replaced by the indices where they are true."""
    found = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.dtype in (D.BOOL, D.UINT8):
            positions = op.NonZero(cast(op, index, D.BOOL))
            if rank(index) == 0:
                raise Unsupported("indexing with a zero-dimensional mask")
            for i in range(rank(index)):
                found.append((axis, op.Gather(positions, np.int64(i), axis=0)))
                axis += 1
        else:
            found.append((axis, cast(op, index, D.INT64)))
            axis += 1
    return found


def stack_indices(op, indices):
    """The indices, broadcast to a common shape, stacked along a new last axis."""
    if len(indices) == 1:
        return op.Unsqueeze(indices[0], [-1])
    shape = None
    if not all(list(i.shape) == list(indices[0].shape) and all(isinstance(d, int) for d in i.shape) for i in indices):
        total = indices[0]
        for i in indices[1:]:
            total = op.Add(total, i)
        shape = shape_value(op, total) if all(isinstance(d, int) for d in total.shape) else op.Shape(total)
    parts = [op.Unsqueeze(i if shape is None else op.Expand(i, shape), [-1]) for i in indices]
    return op.Concat(*parts, axis=-1)


@rule("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(op, self, indices):
    found = integer_indices(op, self, indices)
    if not found:
        return self
    axes = [axis for axis, _ in found]
    if len(found) == 1:
        return op.Gather(self, found[0][1], axis=axes[0])
    rest = [i for i in range(rank(self)) if i not in axes]
    front = op.Transpose(self, perm=axes + rest) if axes + rest != list(range(rank(self))) else self
    positions = stack_indices(op, [i for _, i in found])
    y = op.GatherND(front, positions)
    width = max(rank(i) for _, i in found)
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if not adjacent or axes[0] == 0:
        return y
    # adjacent indices keep the position of their axes
    lead = axes[0]
    order = [*range(width, width + lead), *range(width), *range(width + lead, width + len(rest))]
    return op.Transpose(y, perm=order)


@rule("aten::index_put", "aten::_unsafe_index_put", "aten::_index_put_impl")
def index_put(op, self, indices, values, accumulate=False):
    values = cast(op, values, self.dtype)
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype == D.BOOL and not accumulate and rank(values) == 0:
        mask = op.Unsqueeze(mask, list(range(rank(mask), rank(self)))) if rank(mask) < rank(self) else mask
        return op.Where(mask, values, self)
    found = integer_indices(op, self, indices)
    axes = [axis for axis, _ in found]
    rest = [i for i in range(rank(self)) if i not in axes]
    order = axes + rest
    moved = order != list(range(rank(self)))
    front = op.Transpose(self, perm=order) if moved else self
    positions = stack_indices(op, [i for _, i in found])
    width = rank(positions) - 1
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if adjacent and axes[0] and rank(values) > len(rest) - axes[0]:
        values = _indexed_axes_first(op, values, axes[0], width, len(rest))
    tail = [op.size(front, i) for i in range(len(axes), rank(self))]
    shape = op.dims([*(op.size(positions, i) for i in range(width)), *tail])
    updates = op.Expand(values, shape)
    if self.dtype == D.BOOL and accumulate:
        raise Unsupported("accumulating into bool")
    if accumulate and is_half(self):
        front, updates = op.Cast(front, to=D.FLOAT), op.Cast(updates, to=D.FLOAT)
    y = cast(op, op.ScatterND(front, positions, updates, reduction="add" if accumulate else None), self.dtype)
    return op.Transpose(y, perm=[order.index(i) for i in range(rank(self))]) if moved else y


def _indexed_axes_first(op, values, lead, width, rest):
    """Transpose values from (leading axes, indices, trailing axes) to indices first."""
    missing = lead + width + (rest - lead) - rank(values)
    values = op.Unsqueeze(values, list(range(missing))) if missing else values
    return op.Transpose(values, perm=[*range(lead, lead + width), *range(lead), *range(lead + width, width + rest)])


def scatter_elements(op, x, dim, index, src, reduction=None):
    """ScatterElements with PyTorch's semantics: src may be larger than index."""
    if rank(x) == 0:
        return op.reshape(
            scatter_elements(op, op.reshape(x, [1]), 0, op.reshape(index, [-1]), op.reshape(src, [-1]), reduction), []
        )
    if list(src.shape) != list(index.shape) or not all(isinstance(d, int) for d in src.shape):
        ends = shape_value(op, index)
        src = op.Slice(src, [0] * rank(src), ends, list(range(rank(src)))) if rank(src) else op.Expand(src, ends)
    if x.dtype == D.BOOL and reduction:
        raise Unsupported("reducing into bool")
    if reduction and is_half(x):  # not supported by runtimes
        widened = op.Cast(x, to=D.FLOAT), index, op.Cast(src, to=D.FLOAT)
        return op.Cast(op.ScatterElements(*widened, axis=dim, reduction=reduction), to=x.dtype)
    return op.ScatterElements(x, index, src, axis=dim, reduction=reduction)


@rule("aten::scatter.src")
def scatter(op, self, dim, index, src):
    return scatter_elements(op, self, dim, index, cast(op, src, self.dtype))


@rule("aten::scatter.value")
def scatter_value(op, self, dim, index, value):
    return scatter_elements(op, self, dim, index, op.Expand(cast(op, value, self.dtype), shape_value(op, index)))


@rule("aten::scatter.reduce")
def scatter_with(op, self, dim, index, src, *, reduce):
    return scatter_elements(op, self, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@rule("aten::scatter.value_reduce")
def scatter_value_with(op, self, dim, index, value, *, reduce):
    src = op.Expand(cast(op, value, self.dtype), shape_value(op, index))
    return scatter_elements(op, self, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@rule("aten::scatter_add")
def scatter_add(op, self, dim, index, src):
    return scatter_elements(op, self, dim, index, src, "add")


_NEUTRAL = {"sum": 0, "prod": 1, "mean": 0}


@rule("aten::scatter_reduce.two")
def scatter_reduce(op, self, dim, index, src, reduce, *, include_self=True):
    how = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}[reduce]
    if rank(self) == 0:
        flat = [op.reshape(v, [1]) for v in (self, index, src)]
        return op.reshape(scatter_reduce(op, flat[0], 0, flat[1], flat[2], reduce, include_self=include_self), [])
    start = self
    if not include_self:
        neutral = _NEUTRAL.get(reduce, _lowest(self.dtype, highest=reduce == "amin"))
        cleared = op.Expand(cast(op, neutral, self.dtype), shape_value(op, index))
        start = op.ScatterElements(self, index, cleared, axis=dim)
    y = scatter_elements(op, start, dim, index, src, how)
    if reduce != "mean":
        return y
    ones = op.Expand(cast(op, 1, self.dtype), shape_value(op, index))
    base = op.Expand(cast(op, 1 if include_self else 0, self.dtype), shape_value(op, self))
    count = op.Max(scatter_elements(op, base, dim, index, ones, "add"), 1)
    if self.dtype in (D.INT64, D.INT32):
        from onnxbridge.frontends.pytorch.ops.arithmetic import floor_divide

        return floor_divide(op, y, count)
    return op.Div(y, count)


def _lowest(dtype, highest):
    if category(dtype) == 2:
        return np.inf if highest else -np.inf
    limits = np.iinfo(dtype.numpy())
    return limits.max if highest else limits.min


@rule("aten::index_add")
def index_add(op, self, dim, index, source, *, alpha=1):
    source = source if alpha == 1 else op.Mul(source, alpha)
    return (
        scatter_elements(op, self, dim, _expand_index(op, index, source, dim), source, "add")
        if rank(self)
        else op.Add(self, source)
    )


@rule("aten::index_copy")
def index_copy(op, self, dim, index, source):
    return (
        scatter_elements(op, self, dim, _expand_index(op, index, source, dim), source) if rank(self) else op.reshape(source, [])
    )


@rule("aten::index_fill.int_Scalar", "aten::index_fill.int_Tensor")
def index_fill(op, self, dim, index, value):
    if rank(self) == 0:
        return op.reshape(cast(op, value, self.dtype), [])
    index = index if rank(index) else op.Unsqueeze(index, [0])
    shape = [op.size(index, 0) if i == axis_of(self, dim) else s for i, s in enumerate(sizes(op, self))]
    positions = op.Expand(_along_axis(op, index, rank(self), axis_of(self, dim)), op.dims(shape))
    return op.ScatterElements(self, positions, op.Expand(cast(op, value, self.dtype), op.dims(shape)), axis=dim)


def _along_axis(op, index, width, axis):
    """Reshape a 1-D index to lie along one of `width` axes."""
    return op.reshape(index, [-1 if i == axis else 1 for i in range(width)])


def _expand_index(op, index, source, dim):
    """Expand a 1-D index to the shape of the source, as ScatterElements requires."""
    return op.Expand(_along_axis(op, index, rank(source), axis_of(source, dim)), shape_value(op, source))


@rule("aten::select_scatter")
def select_scatter(op, self, src, dim, index):
    size = op.size(self, dim)
    positions = op.Range(np.int64(0), size if isinstance(size, ir.Value) else np.int64(size), np.int64(1))
    index = index if isinstance(index, ir.Value) else np.int64(index)
    target = op.Where(op.Less(index, 0), op.Add(index, size), index)
    mask = _along_axis(op, op.Equal(positions, target), rank(self), axis_of(self, dim))
    return op.Where(mask, op.Unsqueeze(cast(op, src, self.dtype), [dim]), self)


@rule("aten::slice_scatter")
def slice_scatter(op, self, src, dim=0, start=None, end=None, step=1):
    size = op.size(self, dim)
    positions = op.Range(np.int64(0), size if isinstance(size, ir.Value) else np.int64(size), np.int64(1))
    selected = slice_(op, positions, 0, start, end, step)
    return op.ScatterElements(self, _expand_index(op, selected, src, dim), cast(op, src, self.dtype), axis=dim)


@rule("aten::masked_scatter")
def masked_scatter(op, self, mask, source):
    shape = op.Shape(op.And(op.Expand(False, shape_value(op, self)), mask))
    mask = op.Expand(mask, shape)
    flat = op.reshape(mask, [-1])
    order = op.Sub(op.CumSum(op.Cast(flat, to=D.INT64), np.int64(0)), 1)
    values = op.reshape(source, [-1])
    if not all(isinstance(size, int) and size for size in sizes(op, source)):
        # it may be empty where nothing is masked, and Gather needs an element
        values = op.Concat(values, op.constant([0], dtype=source.dtype), axis=0)
    gathered = op.Gather(values, op.Max(order, 0))
    return op.Where(mask, op.Reshape(gathered, shape), self)


@rule("aten::searchsorted.Tensor")
def searchsorted(op, sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        sorted_sequence = op.GatherElements(sorted_sequence, sorter, axis=-1)
    else:
        sorted_sequence.meta[SORTED] = True
    right = side == "right" if side is not None else right
    edges, x = promote(op, sorted_sequence, self)
    edges = op.Unsqueeze(edges, [-2])
    below = op.LessOrEqual(edges, op.Unsqueeze(x, [-1])) if right else op.Less(edges, op.Unsqueeze(x, [-1]))
    last = rank(below) - 1  # ONNX Runtime ignores negative axes where the tensor is empty
    count = op.ReduceSum(op.Cast(below, to=D.INT64), [last], keepdims=0)
    count = op.reshape(count, []) if rank(self) == 0 and rank(count) else count
    return op.Cast(count, to=D.INT32) if out_int32 else count


@rule("aten::bucketize.Tensor")
def bucketize(op, self, boundaries, *, out_int32=False, right=False):
    return searchsorted(op, boundaries, self, out_int32=out_int32, right=right)


@rule("aten::index_reduce")
def index_reduce(op, self, dim, index, source, reduce, *, include_self=True):
    how = {"mean": "mean", "prod": "prod", "amax": "amax", "amin": "amin"}[reduce]
    if rank(self) == 0:
        one = [op.reshape(v, [1]) for v in (self, index, source)]
        return op.reshape(scatter_reduce(op, one[0], 0, one[1], one[2], how, include_self=include_self), [])
    positions = _expand_index(op, index, source, dim)
    return scatter_reduce(op, self, dim, positions, source, how, include_self=include_self)


@rule("aten::put")
def put(op, self, index, source, accumulate=False):
    flat = op.reshape(self, [-1])
    y = scatter_elements(op, flat, 0, op.reshape(index, [-1]), op.reshape(source, [-1]), "add" if accumulate else None)
    return op.reshape(y, sizes(op, self))
