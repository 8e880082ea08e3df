"""Reshaping, concatenation, splitting, and sizes as values."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import elements, int64, known_ints, length, set_rank, subtract
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import rank, zero
from onnxbridge.rules import Int

INT64 = ir.DataType.INT64


@rule("Reshape")
def reshape(op, tensor, shape):
    if not isinstance(shape, ir.Value):
        return op.Reshape(tensor, list(shape), allowzero=1 if 0 in shape else None)
    sizes = fold.known_sizes(shape)
    if sizes is not None and sizes.count(None) == 1 and not {0, -1} & set(sizes):
        return op.Reshape(tensor, [-1 if s is None else s for s in sizes])
    return op.Reshape(tensor, int64(op, shape), allowzero=1)


@rule("Squeeze")
def squeeze(op, input, *, squeeze_dims=()):
    known = input.shape is not None and all(isinstance(s, int) for s in input.shape)
    axes = list(squeeze_dims) or ([i for i, s in enumerate(input.shape) if s == 1] if known else None)
    return op.Squeeze(input, axes) if axes != [] else input


@rule("ExpandDims")
def expand_dims(op, input, dim):
    axes = known_ints(dim)
    y = op.Unsqueeze(input, op.Reshape(int64(op, dim), [1]) if axes is None else axes)
    return set_rank(y, None if input.shape is None else len(input.shape) + 1)


@rule("Transpose")
def transpose(op, x, perm):
    """With a permutation known only when the model runs, elements are gathered by their index in the flat tensor."""
    axes = known_ints(perm)
    if axes is not None:
        return op.Transpose(x, perm=axes)
    n, perm = rank(x), int64(op, perm)
    sizes = op.Shape(x)
    strides = op.CumProd(sizes, np.int64(0), exclusive=1, reverse=1)
    new_sizes, new_strides = op.Gather(sizes, perm), op.Gather(strides, perm)
    index = op.constant(np.int64(0))
    for i in range(n):
        along = op.Mul(arange(op, op.Gather(new_sizes, np.int64(i))), op.Gather(new_strides, np.int64(i)))
        index = op.Add(op.Unsqueeze(index, [-1]), along) if i else along
    return op.Reshape(op.Gather(op.Reshape(x, [-1]), index), new_sizes, allowzero=1)


@rule("ConcatV2")
def concat_v2(op, values, axis: Int):
    return op.Concat(*values, axis=axis) if len(values) > 1 else values[0]


@rule("Concat")
def concat(op, concat_dim: Int, values):
    return concat_v2(op, values, concat_dim)


@rule("ConcatOffset")
def concat_offset(op, concat_dim, shape):
    """Where each of the tensors with these shapes starts in their concatenation."""
    dtype, count = shape[0].dtype, length(shape[0], "the shapes")
    axis = op.Reshape(int64(op, concat_dim), [1])
    here = op.Equal(np.arange(count), op.Where(op.Less(axis, 0), op.Add(axis, count), axis))
    starts, at = [], op.constant(np.zeros(count, np.int64))
    for s in shape:
        starts.append(_as(op, at, dtype))
        at = op.Add(at, op.Where(here, int64(op, s), 0))
    return tuple(starts)


@rule("Pack")
def pack(op, values, *, axis=0):
    first = values[0]
    if len(values) > 1 and all(v is first for v in values) and first.shape is not None and first.dtype.is_floating_point():
        repeats = np.ones(rank(first) + 1, np.int64)
        repeats[axis] = len(values)
        return op.Tile(op.Unsqueeze(first, [axis]), repeats)
    return op.Concat(*(op.Unsqueeze(v, [axis]) for v in values), axis=axis)


@rule("Unpack")
def unpack(op, value, *, num, axis=0):
    if num == 1:
        return (op.Squeeze(value, [axis]),)
    parts = op.Split(value, axis=axis, num_outputs=num, outputs=num)
    return tuple(op.Squeeze(p, [axis]) for p in parts)


@rule("Split")
def split(op, split_dim: Int, value, *, num_split):
    if num_split == 1:
        return (value,)
    if value.shape is not None and value.shape[split_dim] == 0:  # ONNX Runtime does not divide nothing
        return op.Split(value, [0] * num_split, axis=split_dim, outputs=num_split)
    return op.Split(value, axis=split_dim, num_outputs=num_split, outputs=num_split)


@rule("SplitV")
def split_v(op, value, size_splits, split_dim: Int, *, num_split):
    """-1 among the sizes is what the others leave."""
    if num_split == 1:
        return (value,)
    sizes = known_ints(size_splits)
    if sizes is None or -1 in sizes:
        sizes = int64(op, size_splits)
        rest = subtract(op, op.size(value, split_dim), op.Add(op.ReduceSum(sizes, keepdims=0), 1))
        sizes = op.Where(op.Less(sizes, 0), rest, sizes)
    return op.Split(value, sizes, axis=split_dim, outputs=num_split)


@rule("Tile")
def tile(op, input, multiples):
    return op.Tile(input, int64(op, multiples))


@rule("Shape")
def shape(op, input, *, out_type=ir.DataType.INT32):
    if isinstance(input.type, ir.SequenceType):  # the rows of a ragged tensor
        return _as(op, op.Reshape(op.SequenceLength(input), [1]), out_type)
    return _as(op, op.Shape(input), out_type)


@rule("ShapeN")
def shape_n(op, input, *, out_type=ir.DataType.INT32):
    return tuple(_as(op, op.Shape(x), out_type) for x in input)


def _as(op, x, dtype):
    return x if dtype == x.dtype else op.Cast(x, to=dtype)


@rule("Size")
def size(op, input, *, out_type=ir.DataType.INT32):
    return _as(op, op.Size(input), out_type)


@rule("Rank")
def rank_(op, input):
    return op.constant(np.array(len(input.shape), np.int32)) if input.shape is not None else _as(
        op, op.Squeeze(op.Shape(op.Shape(input)), [0]), ir.DataType.INT32
    )


@rule("Fill")
def fill(op, dims, value, *, index_type=ir.DataType.INT32):
    return op.Expand(value, int64(op, dims))


@rule("BroadcastTo")
def broadcast_to(op, input, shape):
    return op.Expand(input, int64(op, shape))


@rule("ZerosLike")
def zeros_like(op, x):
    return op.ConstantOfShape(op.Shape(x), value=ir.tensor(np.zeros(1, x.dtype.numpy()), dtype=x.dtype))


@rule("OnesLike")
def ones_like(op, x):
    return op.Expand(np.ones((), x.dtype.numpy()), op.Shape(x))


@rule("Empty")
def empty(op, shape, *, dtype, init=False):
    """Zeros: without `init`, TensorFlow leaves the elements open."""
    return op.Expand(zero(dtype), int64(op, shape))


@rule("UnravelIndex")
def unravel_index(op, indices, dims):
    """The index along each axis, [axes, indices], of elements of the flat tensor."""
    strides = op.CumProd(int64(op, dims), np.int64(0), exclusive=1, reverse=1)
    flat = int64(op, indices)
    column = op.Unsqueeze(strides, [1]) if rank(indices) else strides
    sizes = op.Unsqueeze(int64(op, dims), [1]) if rank(indices) else int64(op, dims)
    return _as(op, op.Mod(op.Div(flat, column), sizes), indices.dtype)


@rule("DataFormatVecPermute")
def data_format_vec_permute(op, x, *, src_format="NHWC", dst_format="NCHW"):
    """A vector, or a matrix with a row, for each axis, in the order of another data format; maybe of the spatial axes only."""
    known = x.shape[0]
    if not isinstance(known, int):
        raise Unsupported("a permutation of an unknown number of axes")
    source, target = src_format, dst_format
    if known == len(source) - 2:
        source, target = ("".join(c for c in f if c not in "NC") for f in (source, target))
    return op.Gather(x, np.array([source.index(c) for c in target]), axis=0)


@rule("Range")
def range_(op, start, limit, delta):
    return op.Range(start, limit, delta)


@rule("LinSpace")
def lin_space(op, start, stop, num):
    """Steps of equal size from start; the last element is exactly stop, unless it is the only one."""
    i = op.Cast(arange(op, elements(op, num, 1)[0]), to=start.dtype)
    last = op.Sub(op.Cast(op.Reshape(num, []), to=start.dtype), _number(start, 1))
    step = op.Div(op.Sub(stop, start), op.Max(last, _number(start, 1)))
    at_end = op.And(op.Equal(i, last), op.Greater(last, _number(start, 0)))
    return op.Where(at_end, stop, op.Add(start, op.Mul(i, step)))


def _number(x, number):
    return np.array(number, x.dtype.numpy())


@rule("BroadcastArgs")
def broadcast_args(op, s0, s1):
    """The broadcast shape of two shapes; 1 broadcasts to 0 too."""
    n, m = s0.shape[0], s1.shape[0]
    if not isinstance(n, int) or not isinstance(m, int):
        raise Unsupported("shapes of unknown rank")
    ones = np.ones(abs(n - m), s0.dtype.numpy())
    a = op.Concat(ones, s0, axis=0) if n < m else s0
    b = op.Concat(ones, s1, axis=0) if m < n else s1
    return op.Where(op.Equal(a, np.array(1, s0.dtype.numpy())), b, a)
