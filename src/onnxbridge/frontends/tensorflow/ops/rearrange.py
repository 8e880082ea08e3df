"""Padding, rolling, reversing, and moving blocks between the spatial axes and the batch or the channels."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.channels_last import first, last
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import LEAST, MOST, int64, known_array, known_ints
from onnxbridge.frontends.tensorflow.wider_dtypes import pad as padded
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import rank


def _onnx_pads(op, paddings):
    """[[before, after], ...] in ONNX's order: all befores, then all afters."""
    return op.Reshape(op.Transpose(int64(op, paddings), perm=[1, 0]), [-1])


@rule("Pad")
def pad(op, input, paddings):
    return padded(op, input, _onnx_pads(op, paddings), mode="constant")


@rule("PadV2")
def pad_v2(op, input, paddings, constant_values):
    return padded(op, input, _onnx_pads(op, paddings), constant_values, mode="constant")


@rule("MirrorPad")
def mirror_pad(op, input, paddings, *, mode):
    """SYMMETRIC, which repeats the edge, is a Gather along each axis: ONNX does not have that mode."""
    if mode == "REFLECT":
        return padded(op, input, _onnx_pads(op, paddings), mode="reflect")
    x, pairs = input, _pairs(op, paddings, sizes.length(paddings, "the paddings") if input.shape is None else rank(input))
    for axis, (before, after) in enumerate(pairs):
        if before == 0 and after == 0:
            continue
        size = op.size(x, axis)
        i = op.Sub(arange(op, sizes.add(op, size, sizes.add(op, before, after))), before)
        i = op.Where(op.Less(i, 0), op.Sub(-1, i), i)
        i = op.Where(op.Less(i, size), i, op.Sub(sizes.subtract(op, sizes.multiply(op, size, 2), 1), i))
        x = op.Gather(x, i, axis=axis)
    return x


def _pairs(op, paddings, count):
    """The elements of a [count, 2] matrix, as pairs."""
    flat = sizes.elements(op, op.Reshape(int64(op, paddings), [-1]), 2 * count)
    return [(flat[2 * i], flat[2 * i + 1]) for i in range(count)]


@rule("Roll")
def roll(op, input, shift, axis):
    axes = known_ints(axis)
    shifts = sizes.elements(op, shift, len(axes)) if axes is not None else []
    if axes is None:  # the total shift of every axis
        n = rank(input)
        at = op.Reshape(int64(op, axis), [-1])
        at = op.Where(op.Less(at, 0), op.Add(at, n), at)
        total = op.ScatterElements(np.zeros(n, np.int64), at, op.Reshape(int64(op, shift), [-1]), reduction="add")
        axes, shifts = list(range(n)), sizes.elements(op, total, n)
    x = input
    for s, a in zip(shifts, axes, strict=True):
        size = op.size(x, a)
        if isinstance(s, int) and isinstance(size, int):
            if size == 0 or s % size == 0:
                continue
            start = -s % size
        else:
            start = op.Mod(op.Neg(sizes.scalar(op, s)), sizes.scalar(op, sizes.maximum(op, size, 1)))
        start = sizes.vector(op, start)
        x = op.Concat(op.Slice(x, start, [MOST], [a]), op.Slice(x, [0], start, [a]), axis=a)
    return x


@rule("ReverseV2")
def reverse_v2(op, tensor, axis):
    axes = known_ints(axis)
    if axes is None:
        axes = op.Reshape(int64(op, axis), [-1])
        starts, ends, steps = (op.Expand(np.int64(v), op.Shape(axes)) for v in (MOST, LEAST, -1))
        return op.Slice(tensor, starts, ends, axes, steps)
    n = len(axes)
    return op.Slice(tensor, [MOST] * n, [LEAST] * n, axes, [-1] * n) if n else tensor


@rule("Reverse")
def reverse(op, tensor, dims):
    flags = known_array(dims)
    if flags is None:
        return reverse_v2(op, tensor, op.Squeeze(op.NonZero(dims), [0]))
    return reverse_v2(op, tensor, np.flatnonzero(flags))


@rule("ReverseSequence")
def reverse_sequence(op, input, seq_lengths, *, seq_dim, batch_dim=0):
    lengths, n = int64(op, seq_lengths), rank(input)
    seq_dim, batch_dim = seq_dim % n, batch_dim % n
    if {seq_dim, batch_dim} == {0, 1}:
        return op.ReverseSequence(input, lengths, time_axis=seq_dim, batch_axis=batch_dim)
    order = [batch_dim, seq_dim, *(i for i in range(n) if i not in (batch_dim, seq_dim))]
    y = op.ReverseSequence(op.Transpose(input, perm=order), lengths, time_axis=1, batch_axis=0)
    return op.Transpose(y, perm=[int(i) for i in np.argsort(order)])


@rule("InvertPermutation")
def invert_permutation(op, x):
    positions = arange(op, op.size(x, 0))
    return op.ScatterElements(x, int64(op, x), op.Cast(positions, to=x.dtype), axis=0)


@rule("SpaceToDepth")
def space_to_depth(op, input, *, block_size, data_format="NHWC"):
    return last(op, op.SpaceToDepth(first(op, input, data_format), blocksize=block_size), data_format)


@rule("DepthToSpace")
def depth_to_space(op, input, *, block_size, data_format="NHWC"):
    return last(op, op.DepthToSpace(first(op, input, data_format), blocksize=block_size, mode="DCR"), data_format)


def _product(op, values):
    total = 1
    for v in values:
        total = sizes.multiply(op, total, v)
    return total


def _block_count(block_shape, paddings):
    for known in (block_shape, paddings):
        if known.shape is not None and isinstance(known.shape[0], int):
            return known.shape[0]
    raise Unsupported("blocks along an unknown number of axes", "give block_shape a static shape")


@rule("SpaceToBatchND")
def space_to_batch_nd(op, input, block_shape, paddings):
    """Pad, split each spatial axis into (size / block, block), and move the blocks to the batch axis."""
    n, m = rank(input), _block_count(block_shape, paddings)
    blocks, known = sizes.elements(op, block_shape, m), known_array(paddings)
    x = input
    if known is None or known.any():
        around = [np.zeros((k, 2), np.int64) for k in (1, n - m - 1)]
        x = padded(op, x, _onnx_pads(op, op.Concat(around[0], int64(op, paddings), around[1], axis=0)))
    batch, rest = op.size(x, 0), [op.size(x, i) for i in range(m + 1, n)]
    counts = [sizes.divide(op, op.size(x, i + 1), b) for i, b in enumerate(blocks)]
    x = _reshape(op, x, [batch, *(s for pair in zip(counts, blocks, strict=True) for s in pair), *rest])
    spatial = [2 * i + 1 for i in range(m)]
    x = op.Transpose(x, perm=[*(w + 1 for w in spatial), 0, *spatial, *range(2 * m + 1, n + m)])
    return _reshape(op, x, [sizes.multiply(op, batch, _product(op, blocks)), *counts, *rest])


def _reshape(op, x, new_sizes):
    """x with these sizes; with more than one of them dynamic, they may be 0."""
    if sum(not isinstance(s, int) for s in new_sizes) < 2:
        return op.reshape(x, new_sizes)
    return op.Reshape(x, op.dims(new_sizes), allowzero=1)


@rule("BatchToSpaceND")
def batch_to_space_nd(op, input, block_shape, crops):
    """Move the blocks from the batch axis between the spatial elements, and crop."""
    n, m = rank(input), _block_count(block_shape, crops)
    blocks = sizes.elements(op, block_shape, m)
    batch = sizes.divide(op, op.size(input, 0), _product(op, blocks))
    old_sizes = [op.size(input, i) for i in range(1, n)]
    x = _reshape(op, input, [*blocks, batch, *old_sizes])
    order = [m]
    for i in range(m):
        order += [m + 1 + i, i]
    x = op.Transpose(x, perm=order + list(range(2 * m + 1, n + m)))
    grown = [sizes.multiply(op, s, b) for s, b in zip(old_sizes, blocks, strict=False)]
    x = _reshape(op, x, [batch, *grown, *old_sizes[m:]])
    known = known_array(crops)
    if known is not None and not known.any():
        return x
    starts, ends = zip(*_pairs(op, crops, m), strict=True)
    ends = [sizes.subtract(op, size, end) for size, end in zip(grown, ends, strict=True)]
    return op.Slice(x, op.dims(starts), op.dims(ends), list(range(1, m + 1)))


@rule("SpaceToBatch")
def space_to_batch(op, input, paddings, *, block_size):
    return space_to_batch_nd(op, input, op.constant(np.array([block_size] * 2)), paddings)


@rule("BatchToSpace")
def batch_to_space(op, input, crops, *, block_size):
    return batch_to_space_nd(op, input, op.constant(np.array([block_size] * 2)), crops)
