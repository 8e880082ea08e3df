"""Gather, scatter, sorting and masking."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import NARROW, as_tuple, named
from onnxbridge.hub.ir.values import cast, like, rank, static_shape

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


def bounded(op, indices, size, mode):
    """Indices as int64; out-of-range ones are clipped ("clip"), wrapped ("wrap") or unchanged ("raise")."""
    indices = cast(op, indices, INT64)
    if mode == "clip":
        return op.Min(op.Max(indices, 0), op.Sub(size, 1) if isinstance(size, ir.Value) else size - 1)
    if mode == "wrap":
        return op.Mod(indices, size)
    return indices


@rule("take")
def take(op, a, indices, *, axis=0, mode="clip"):
    return op.Gather(a, bounded(op, indices, op.size(a, axis), mode), axis=axis)


@rule("Embedding", "_contrib_SparseEmbedding", "_npx_embedding")
def embedding(op, data, weight, *, input_dim, output_dim, dtype="float32", sparse_grad=False, deterministic=False):
    return op.Gather(weight, bounded(op, data, input_dim, "clip"), axis=0)


@rule("pick", "choose_element_0index", "_npx_pick")
def pick(op, data, index, *, axis=-1, keepdims=False, mode="clip"):
    if axis is None:
        data, axis = op.Reshape(data, [-1]), 0
        raise_rank = rank(index)
        if raise_rank != 1:
            raise Unsupported("axis=None is only supported with indices of one dimension")
        return op.Gather(data, bounded(op, index, op.size(data, 0), mode))
    axis %= rank(data)
    index = bounded(op, index, op.size(data, axis), mode)
    if rank(index) < rank(data):
        index = op.Unsqueeze(index, [axis])
    picked = op.GatherElements(data, index, axis=axis)
    return picked if keepdims or rank(data) == 1 else op.Squeeze(picked, [axis])  # one element of a vector stays one


@rule("batch_take")
def batch_take(op, a, indices):
    chosen = op.Unsqueeze(bounded(op, op.Reshape(indices, [-1]), op.size(a, 1), "clip"), [1])
    return op.Reshape(op.GatherElements(a, chosen, axis=1), op.Shape(indices))


@rule("gather_nd", "_npx_gather_nd")
def gather_nd(op, data, indices):
    """The first dimension of the indices enumerates the dimensions of the data."""
    return op.GatherND(data, _last(op, cast(op, indices, INT64)))


def _last(op, indices):
    """Move the first dimension to the end."""
    return op.Transpose(indices, perm=[*range(1, rank(indices)), 0])


@rule("scatter_nd")
def scatter_nd(op, data, indices, *, shape):
    zeros = op.Expand(op.constant(np.zeros((), data.dtype.numpy())), list(shape))
    return op.ScatterND(zeros, _last(op, cast(op, indices, INT64)), data)


@rule("one_hot", "_npx_one_hot")
def one_hot(op, indices, *, depth, on_value=1.0, off_value=0.0, dtype="float32"):
    """An index outside [0, depth) gives no hot element."""
    hot = op.Equal(op.Unsqueeze(cast(op, indices, INT64), [-1]), np.arange(depth))
    kind = named(dtype)
    values = [op.constant(np.asarray(v).astype(kind.numpy())) for v in (on_value, off_value)]
    return op.Where(hot, *values)


@rule("where")
def where(op, condition, x, y):
    chosen = cast(op, condition, BOOL)
    if rank(condition) == 1 and rank(x) > 1:  # one condition per row
        chosen = op.Reshape(chosen, [-1] + [1] * (rank(x) - 1))
    return op.Where(chosen, x, y)


@rule("_contrib_boolean_mask")
def boolean_mask(op, data, index, *, axis=0):
    return op.Compress(data, cast(op, index, BOOL), axis=axis)


@rule("_contrib_index_copy")
def index_copy(op, old_tensor, index_vector, new_tensor):
    return op.ScatterND(old_tensor, op.Unsqueeze(cast(op, index_vector, INT64), [1]), new_tensor)


@rule("_contrib_index_array")
def index_array(op, data, *, axes=None):
    """Each element's coordinates, all or those of `axes`."""
    dims = static_shape(data)
    if not dims:
        return op.constant(np.zeros(0, np.int64))
    chosen = list(range(len(dims))) if axes is None else [a % len(dims) for a in as_tuple(axes)]
    return op.constant(np.stack([np.indices(dims)[a] for a in chosen], -1).astype(np.int64))


def unravel(op, data, shape):
    """The coordinates of positions in an array of this shape. Its first size may be -1: it is not used."""
    index, rows = cast(op, data, INT64), []
    for size in shape[:0:-1]:
        rows.insert(0, op.Unsqueeze(op.Mod(index, size, fmod=1), [0]))
        index = op.Div(index, size)
    rows.insert(0, op.Unsqueeze(index, [0]))
    return like(op, op.Concat(*rows, axis=0), data)


@rule("_unravel_index", "unravel_index")
def unravel_index(op, data, *, shape=None):
    return unravel(op, data, shape)


@rule("_ravel_multi_index", "ravel_multi_index")
def ravel_multi_index(op, data, *, shape=None):
    """MXNet cuts off fractions after each coordinate is added, not before."""
    if data.dtype.is_floating_point():
        flat = cast(op, op.Gather(data, 0, axis=0), INT64)
        for i, size in enumerate(shape[1:], start=1):
            flat = cast(op, op.Add(like(op, op.Mul(flat, size), data), op.Gather(data, i, axis=0)), INT64)
        return like(op, flat, data)
    strides = np.cumprod([1, *shape[:0:-1]])[::-1].reshape([-1] + [1] * (rank(data) - 1))
    flat = op.ReduceSum(op.Mul(cast(op, data, INT64), np.ascontiguousarray(strides, np.int64)), [0], keepdims=0)
    return like(op, flat, data)


# sorting


def _order(op, data, axis, ascending, count=None):
    """Values and indices sorted along an axis."""
    size = op.size(data, axis)
    count = size if count is None or (isinstance(size, int) and count > size) else count
    narrow = data.dtype in (ir.DataType.INT8, ir.DataType.UINT8)
    wide = op.Cast(data, to=ir.DataType.INT32) if narrow else data
    values, indices = op.TopK(wide, op.dims([count]), axis=axis, largest=int(not ascending), outputs=2)
    return like(op, values, data), indices


@rule("sort")
def sort(op, data, *, axis=-1, is_ascend=True):
    data, axis = (op.Reshape(data, [-1]), 0) if axis is None else (data, axis)
    return _order(op, data, axis, is_ascend)[0]


@rule("argsort")
def argsort(op, data, *, axis=-1, is_ascend=True, dtype="float32"):
    data, axis = (op.Reshape(data, [-1]), 0) if axis is None else (data, axis)
    return cast(op, _order(op, data, axis, is_ascend)[1], named(dtype))


@rule("topk", "_npx_topk")
def topk(op, data, *, axis=-1, k=1, ret_typ="indices", is_ascend=False, dtype="float32"):
    if axis is None and ret_typ == "mask":
        return op.Reshape(topk(op, op.Reshape(data, [-1]), axis=0, k=k, ret_typ="mask", is_ascend=is_ascend), op.Shape(data))
    data, axis = (op.Reshape(data, [-1]), 0) if axis is None else (data, axis)
    values, indices = _order(op, data, axis, is_ascend, k if k >= 1 else None)
    if ret_typ == "mask":
        zeros = op.Expand(op.constant(np.zeros((), data.dtype.numpy())), op.Shape(data))
        ones = op.Expand(op.constant(np.ones((), data.dtype.numpy())), op.Shape(indices))
        return op.ScatterElements(zeros, indices, ones, axis=axis)
    found = {"value": values, "indices": cast(op, indices, named(dtype))}
    return (found["value"], found["indices"]) if ret_typ == "both" else found[ret_typ]


@rule("cumsum", "_np_cumsum")
def cumsum(op, a, *, axis=None, dtype=None):
    data, axis = (op.Reshape(a, [-1]), 0) if axis is None else (a, axis)
    if dtype is not None:
        data = cast(op, data, named(dtype))
    elif data.dtype == BOOL:
        data = op.Cast(data, to=INT64)
    wide = op.Cast(data, to=ir.DataType.INT32) if data.dtype in NARROW else data
    return like(op, op.CumSum(wide, op.constant(np.int64(axis))), data)


# slice assignment, x[begin:end] = y


@rule("_slice_assign", "_crop_assign")
def slice_assign(op, lhs, rhs, *, begin, end, step=()):
    return op.ScatterND(lhs, op.constant(_positions(lhs, begin, end, step)), rhs)


@rule("_slice_assign_scalar", "_crop_assign_scalar")
def slice_assign_scalar(op, data, *, scalar=0.0, begin, end, step=()):
    positions = _positions(data, begin, end, step)
    return op.ScatterND(data, op.constant(positions), op.constant(np.full(positions.shape[:-1], scalar, data.dtype.numpy())))


def _positions(data, begin, end, step):
    """The coordinates of the slice's elements, in the last dimension."""
    dims = static_shape(data)
    steps = [*as_tuple(step), *[None] * (len(dims) - len(as_tuple(step)))]
    cuts = [slice(b, e, s) for b, e, s in zip(as_tuple(begin), as_tuple(end), steps, strict=False)]
    return np.stack(np.indices(dims), -1)[tuple(cuts)].astype(np.int64)
