"""Reshaping, concatenation, splitting, padding, and sizes as values."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Array, Int, Ints

INT64 = ir.DataType.INT64


def int64(op, x):
    """Sizes and indices as int64."""
    return x if not isinstance(x, ir.Value) or x.dtype == INT64 else op.Cast(x, to=INT64)


@rule("Reshape")
def reshape(op, tensor, shape):
    if not isinstance(shape, ir.Value):
        return op.Reshape(tensor, list(shape))
    sizes = fold.known_sizes(shape)
    if sizes is not None and sizes.count(None) == 1 and not {0, -1} & set(sizes):
        return op.Reshape(tensor, [-1 if s is None else s for s in sizes])
    return op.Reshape(tensor, int64(op, shape), allowzero=1)


@rule("Squeeze")
def squeeze(op, input, *, squeeze_dims=()):
    return op.Squeeze(input, list(squeeze_dims) or [i for i, s in enumerate(_all_known(input)) if s == 1])


def _all_known(x):
    rank(x)
    if not all(isinstance(s, int) for s in x.shape):
        raise Unsupported("Squeeze of dynamic sizes without axes", "pass the axes")
    return list(x.shape)


@rule("ExpandDims")
def expand_dims(op, input, dim: Int):
    return op.Unsqueeze(input, [dim])


@rule("Transpose")
def transpose(op, x, perm: Ints):
    return op.Transpose(x, perm=list(perm))


@rule("ConcatV2")
def concat_v2(op, values, axis: Int):
    return op.Concat(*values, axis=axis) if len(values) > 1 else values[0]


@rule("Concat")
def concat(op, concat_dim: Int, values):
    return concat_v2(op, values, concat_dim)


@rule("Pack")
def pack(op, values, *, axis=0):
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
    return op.Split(value, axis=split_dim, num_outputs=num_split, outputs=num_split)


@rule("SplitV")
def split_v(op, value, size_splits: Ints, split_dim: Int, *, num_split):
    if num_split == 1:
        return (value,)
    sizes = list(size_splits)
    if -1 in sizes:
        size = value.shape[split_dim]
        if not isinstance(size, int):
            raise Unsupported("a split into -1 of an unknown size")
        sizes[sizes.index(-1)] = size - sum(s for s in sizes if s >= 0)
    return op.Split(value, sizes, axis=split_dim, outputs=num_split)


@rule("Tile")
def tile(op, input, multiples):
    return op.Tile(input, int64(op, multiples))


@rule("Shape")
def shape(op, input, *, out_type=ir.DataType.INT32):
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
    return op.constant(np.array(rank(input), np.int32))


@rule("Fill")
def fill(op, dims, value, *, index_type=ir.DataType.INT32):
    return op.Expand(value, int64(op, dims))


@rule("BroadcastTo")
def broadcast_to(op, input, shape):
    return op.Expand(input, int64(op, shape))


@rule("ZerosLike")
def zeros_like(op, x):
    return op.Expand(np.zeros((), x.dtype.numpy()), op.Shape(x))


@rule("OnesLike")
def ones_like(op, x):
    return op.Expand(np.ones((), x.dtype.numpy()), op.Shape(x))


def _onnx_pads(op, paddings):
    """[[before, after], ...] in ONNX's order: all befores, then all afters."""
    return op.Reshape(op.Transpose(int64(op, paddings), perm=[1, 0]), [-1])


@rule("Pad")
def pad(op, input, paddings):
    return op.Pad(input, _onnx_pads(op, paddings), mode="constant")


@rule("PadV2")
def pad_v2(op, input, paddings, constant_values):
    return op.Pad(input, _onnx_pads(op, paddings), constant_values, mode="constant")


@rule("MirrorPad")
def mirror_pad(op, input, paddings: Array, *, mode):
    if mode == "REFLECT":
        return op.Pad(input, [int(p) for p in np.asarray(paddings).T.reshape(-1)], mode="reflect")
    x = input  # ONNX has no SYMMETRIC mode, which repeats the edge
    for axis, (before, after) in enumerate(np.asarray(paddings).tolist()):
        parts = [x]
        if before:
            parts.insert(0, op.Slice(x, [before - 1], [np.iinfo(np.int64).min], [axis], [-1]))
        if after:
            end = op.size(x, axis)
            if not isinstance(end, int):
                raise Unsupported("symmetric padding of an unknown size")
            stop = end - after - 1
            parts.append(op.Slice(x, [end - 1], [stop if stop >= 0 else np.iinfo(np.int64).min], [axis], [-1]))
        x = op.Concat(*parts, axis=axis) if len(parts) > 1 else x
    return x


@rule("SpaceToDepth")
def space_to_depth(op, input, *, block_size, data_format="NHWC"):
    return last(op, op.SpaceToDepth(first(op, input, data_format), blocksize=block_size), data_format)


@rule("DepthToSpace")
def depth_to_space(op, input, *, block_size, data_format="NHWC"):
    return last(op, op.DepthToSpace(first(op, input, data_format), blocksize=block_size, mode="DCR"), data_format)


@rule("SpaceToBatchND")
def space_to_batch_nd(op, input, block_shape: Ints, paddings: Array):
    """Pad, split each spatial axis into (size / block, block), and move the blocks to the batch axis."""
    n, m = rank(input), len(block_shape)
    pads = np.zeros((n, 2), np.int64)
    pads[1 : m + 1] = paddings
    x = op.Pad(input, pads.T.reshape(-1)) if pads.any() else input
    cut = [op.size(x, 0)]
    for i, b in enumerate(block_shape):
        size = op.size(x, i + 1)
        cut += [size // b if isinstance(size, int) else op.Div(size, b), b]
    rest = [op.size(x, i) for i in range(m + 1, n)]
    x = op.reshape(x, cut + rest)
    spatial = [2 * i + 1 for i in range(m)]
    x = op.Transpose(x, perm=[*(w + 1 for w in spatial), 0, *spatial, *range(2 * m + 1, n + m)])
    batch = cut[0] * int(np.prod(block_shape)) if isinstance(cut[0], int) else op.Mul(cut[0], int(np.prod(block_shape)))
    return op.reshape(x, [batch, *cut[1::2], *rest])


@rule("BatchToSpaceND")
def batch_to_space_nd(op, input, block_shape: Ints, crops: Array):
    """Move the blocks from the batch axis between the spatial elements, and crop."""
    n, m = rank(input), len(block_shape)
    total = int(np.prod(block_shape))
    batch = op.size(input, 0)
    batch = batch // total if isinstance(batch, int) else op.Div(batch, total)
    sizes = [op.size(input, i) for i in range(1, n)]
    x = op.reshape(input, [*block_shape, batch, *sizes])
    order = [m]
    for i in range(m):
        order += [m + 1 + i, i]
    x = op.Transpose(x, perm=order + list(range(2 * m + 1, n + m)))
    grown = [s * b if isinstance(s, int) else op.Mul(s, b) for s, b in zip(sizes, block_shape, strict=False)]
    x = op.reshape(x, [batch, *grown, *sizes[m:]])
    crops = np.asarray(crops)
    if not crops.any():
        return x
    max_end = np.iinfo(np.int64).max
    return op.Slice(x, crops[:, 0].tolist(), [-int(c) if c else max_end for c in crops[:, 1]], list(range(1, m + 1)))


@rule("InvertPermutation")
def invert_permutation(op, x: Array):
    return op.constant(np.argsort(x).astype(np.asarray(x).dtype))


@rule("Range")
def range_(op, start, limit, delta):
    return op.Range(start, limit, delta)


@rule("LinSpace")
def lin_space(op, start, stop, num: Int):
    if num == 1:
        return op.Reshape(start, [1])
    steps = np.arange(num, dtype=start.dtype.numpy())
    step = op.Div(op.Sub(stop, start), np.array(num - 1, start.dtype.numpy()))
    body = op.Add(start, op.Mul(steps[:-1], step))
    return op.Concat(body, op.Reshape(stop, [1]), axis=0)


@rule("Roll")
def roll(op, input, shift: Ints, axis: Ints):
    x = input
    for s, a in zip(shift, axis, strict=True):
        size = x.shape[a] if rank(x) else 1
        if not isinstance(size, int):
            raise Unsupported("a roll along an axis of unknown size")
        if size and s % size:
            low, high = op.Split(x, [size - s % size, s % size], axis=a, outputs=2)
            x = op.Concat(high, low, axis=a)
    return x


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
