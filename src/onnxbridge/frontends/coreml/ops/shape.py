"""Reshape, transpose, concat, split, pad and fill operators."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import cast, rank, static_shape
from onnxbridge.rules import Bool, Float, Int, Ints, Str

INT64 = ir.DataType.INT64
LAST = np.iinfo(np.int64).max


@rule("shape")
def shape(op, x):
    return op.Cast(op.Shape(x), to=ir.DataType.INT32)


@rule("reshape")
def reshape(op, x, shape):
    """A 0 stands for the size of x at the same axis, aligned at the right; outside of x it is 1."""
    known = constant_array(shape)
    if known is None:
        return op.Reshape(x, cast(op, shape, INT64))
    sizes = [int(n) for n in known.reshape(-1)]
    shift = rank(x) - len(sizes)
    return op.reshape(x, [n or (op.size(x, i + shift) if i + shift >= 0 else 1) for i, n in enumerate(sizes)])


@rule("reshape_like")
def reshape_like(op, x, ref_tensors, begins, ends, end_masks):
    parts = []
    for ref, begin, end, to_the_end in zip(ref_tensors, begins, ends, end_masks, strict=True):
        begin, end, to_the_end = (constant_array(v) for v in (begin, end, to_the_end))
        if begin is None or end is None or to_the_end is None:
            raise Unsupported("begins, ends and end_masks must be constant")
        parts.append(op.Shape(ref, start=int(begin), end=None if to_the_end else int(end)))
    return op.Reshape(x, op.Concat(*parts, axis=0))


@rule("expand_dims")
def expand_dims(op, x, axes: Ints):
    return op.Unsqueeze(x, axes)


@rule("squeeze")
def squeeze(op, x, axes: Ints | None = None):
    """Axes of sizes other than 1 are not removed. A given axis of dynamic size is; at run time it must be 1."""
    if axes is None:
        return op.Squeeze(x, [a for a in range(rank(x)) if x.shape[a] == 1])
    return op.Squeeze(x, [a for a in (a % rank(x) for a in axes) if not isinstance(x.shape[a], int) or x.shape[a] == 1])


@rule("at_least_rank")
def at_least_rank(op, x, rank: Int, append: Bool = False):
    if x.shape is None:
        shape = op.Shape(x)
        ones = op.Expand(op.constant(np.int64(1)), op.Reshape(op.Max(op.Sub(np.int64(rank), op.Size(shape)), np.int64(0)), [1]))
        return op.Reshape(x, op.Concat(*((shape, ones) if append else (ones, shape)), axis=0))
    current = len(x.shape)
    missing = range(rank - current)
    return op.Unsqueeze(x, [current + i for i in missing] if append else list(missing)) if missing else x


@rule("as_described")
def as_described(op, x, shape: Ints):
    known = x.shape is not None and all(isinstance(n, int) for n in x.shape)
    if not known or len(x.shape) == len(shape) or math.prod(x.shape) != math.prod(shape):
        return x
    return op.Reshape(x, list(shape))


@rule("flatten2d")
def flatten2d(op, x, axis: Int = 1):
    return op.Flatten(x, axis=axis)


@rule("transpose")
def transpose(op, x, perm: Ints):
    lead = rank(x) - len(perm)
    return op.Transpose(x, perm=[*range(lead), *(lead + p % len(perm) for p in perm)])


def reverse_axes(op, x, axes):
    """Reverse `x` along these axes."""
    count = len(axes)
    return op.Slice(x, [-1] * count, [-LAST - 1] * count, axes, [-1] * count)


@rule("reverse")
def reverse(op, x, axes: Ints | None = None):
    return reverse_axes(op, x, list(range(rank(x)) if axes is None else axes))


@rule("reverse_sequence")
def reverse_sequence(op, x, lengths, seq_axis: Int = 0, batch_axis: Int = 0):
    """ONNX's ReverseSequence needs the two axes first."""
    seq_axis, batch_axis = seq_axis % rank(x), batch_axis % rank(x)
    order = [batch_axis, seq_axis, *(a for a in range(rank(x)) if a not in (batch_axis, seq_axis))]
    y = op.ReverseSequence(op.Transpose(x, perm=order), cast(op, lengths, INT64), batch_axis=0, time_axis=1)
    return op.Transpose(y, perm=np.argsort(order).tolist())


@rule("concat")
def concat(op, values, axis: Int, interleave: Bool = False):
    if not rank(values[0]):
        return stack(op, values, 0)
    if not interleave:
        return op.Concat(*values, axis=axis)
    axis %= rank(values[0])
    sizes = [op.size(values[0], a) for a in range(rank(values[0]))]
    sizes[axis] = sizes[axis] * len(values) if isinstance(sizes[axis], int) else op.Mul(sizes[axis], len(values))
    return op.reshape(stack(op, values, axis + 1), sizes)


@rule("stack")
def stack(op, values, axis: Int):
    return op.Concat(*(op.Unsqueeze(v, [axis]) for v in values), axis=axis)


@rule("split")
def split(op, x, axis: Int, num_splits: Int | None = None, split_sizes: Ints | None = None):
    size = x.shape[axis] if x.shape is not None else None
    if (
        split_sizes is None and isinstance(size, int) and size % num_splits
    ):  # the first parts are larger; in ONNX the last part is smaller
        split_sizes = [size // num_splits + (i < size % num_splits) for i in range(num_splits)]
    if split_sizes is None:
        return op.Split(x, axis=axis, num_outputs=num_splits, outputs=num_splits)
    return op.Split(x, split_sizes, axis=axis, outputs=len(split_sizes))


@rule("tile")
def tile(op, x, reps):
    return op.Tile(x, cast(op, reps, INT64))


@rule("pad")
def pad(op, x, pad, mode: Str = "constant", constant_val: Float = 0.0):
    """`pad` applies to the last axes."""
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    if mode not in modes:
        raise Unsupported(f"mode {mode}")
    (count,) = static_shape(pad)
    pads = op.Reshape(op.Transpose(op.Reshape(cast(op, pad, INT64), [-1, 2]), perm=[1, 0]), [-1])
    axes = list(range(rank(x) - count // 2, rank(x)))
    return op.Pad(x, pads, constant_val if mode == "constant" else None, axes, mode=modes[mode])


@rule("fill")
def fill(op, shape, value=0.0):
    value = op.constant(np.float32(value)) if isinstance(value, float) else value
    return op.Expand(value, cast(op, shape, INT64))


@rule("fill_like")
def fill_like(op, ref_tensor, value=0.0):
    value = op.constant(np.float32(value)) if isinstance(value, float) else value
    return op.Expand(value, op.Shape(ref_tensor))


@rule("range_1d")
def range_1d(op, end, start, step):
    """ONNX's Range does not support float16."""
    if start.dtype != ir.DataType.FLOAT16:
        return op.Range(start, end, step)
    return op.Cast(op.Range(*(op.Cast(v, to=ir.DataType.FLOAT) for v in (start, end, step))), to=start.dtype)


@rule("band_part")
def band_part(op, x, lower: Int = -1, upper: Int = -1):
    y = x if lower < 0 else op.Trilu(x, op.constant(-lower), upper=1)
    return y if upper < 0 else op.Trilu(y, op.constant(upper), upper=0)


@rule("sliding_windows")
def sliding_windows(op, x, axis: Int, size: Int, stride: Int = 1):
    axis %= rank(x)
    (length,) = static_shape(x, [axis])
    starts = np.arange(0, length - size + 1, stride)
    return op.Gather(x, starts[:, None] + np.arange(size), axis=axis)


@rule("depth_to_space")
def depth_to_space(op, x, block_size: Int):
    return op.DepthToSpace(x, blocksize=block_size, mode="DCR")


@rule("space_to_depth")
def space_to_depth(op, x, block_size: Int):
    return op.SpaceToDepth(x, blocksize=block_size)


@rule("pixel_shuffle")
def pixel_shuffle(op, x, upscale_factor: Int):
    return op.DepthToSpace(x, blocksize=upscale_factor, mode="CRD")


def _rearrange(op, x, split, perm, group_counts):
    """Split each axis into sizes `split[axis]`, transpose by `perm`, and merge groups of `group_counts` adjacent axes."""
    split_x = op.reshape(x, [n for sizes in split for n in sizes])
    transposed = op.Transpose(split_x, perm=perm)
    sizes = [[n for sizes in split for n in sizes][p] for p in perm]
    groups, start = [], 0
    for count in group_counts:
        groups.append(_product(op, sizes[start : start + count]))
        start += count
    return op.reshape(transposed, groups)


def _product(op, sizes):
    """The product of sizes that are integers or values."""
    total = 1
    for n in sizes:
        is_static = isinstance(total, int) and isinstance(n, int)
        total = total * n if is_static else n if total == 1 else total if n == 1 else op.Mul(total, n)
    return total


def _divide(op, size, count):
    """Divide a size, an integer or a value, by an integer."""
    return size // count if isinstance(size, int) else op.Div(size, count)


@rule("pixel_unshuffle")
def pixel_unshuffle(op, x, downscale_factor: Int):
    f = downscale_factor
    n, c, h, w = (op.size(x, a) for a in range(4))
    split = [[n], [c], [_divide(op, h, f), f], [_divide(op, w, f), f]]
    return _rearrange(op, x, split, [0, 1, 3, 5, 2, 4], [1, 3, 1, 1])


@rule("space_to_batch")
def space_to_batch(op, x, block_shape: Ints, paddings: Ints):
    x = op.Pad(x, [paddings[0], paddings[2], paddings[1], paddings[3]], None, [2, 3])
    (p, q), (n, c, h, w) = block_shape, (op.size(x, a) for a in range(4))
    return _rearrange(op, x, [[n], [c], [_divide(op, h, p), p], [_divide(op, w, q), q]], [3, 5, 0, 1, 2, 4], [3, 1, 1, 1])


@rule("batch_to_space")
def batch_to_space(op, x, block_shape: Ints, crops: Ints):
    (p, q), (n, c, h, w) = block_shape, (op.size(x, a) for a in range(4))
    y = _rearrange(op, x, [[p, q, _divide(op, n, p * q)], [c], [h], [w]], [2, 3, 4, 0, 5, 1], [1, 1, 2, 2])
    return op.Pad(y, [-crops[0], -crops[2], -crops[1], -crops[3]], None, [2, 3])
