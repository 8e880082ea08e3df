"""Reshape, transpose, concat, split, pad and fill operators."""

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.rules import Bool, Float, Int, Ints, Str
from onnxbridge.runtime.executor.numpy.kernels.windows import pad as spatial_pad
from onnxbridge.runtime.mil.ops import Values, rule


@rule("shape", kind="move")
def shape(x):
    return np.array(x.shape, np.int32)


@rule("reshape", kind="move")
def reshape(x, shape: Ints):
    """A 0 stands for the size of x at the same axis, aligned at the right; outside of x it is 1."""
    shift = x.ndim - len(shape)
    sizes = [n if n else x.shape[i + shift] if i + shift >= 0 else 1 for i, n in enumerate(shape)]
    if x.size == 0 and -1 in sizes:
        sizes[sizes.index(-1)] = 0 if math.prod(n for n in sizes if n != -1) else 1
    return x.reshape(sizes)


@rule("reshape_like", kind="move")
def reshape_like(x, ref_tensors: Values, begins: Values, ends: Values, end_masks: Values):
    sizes = []
    for ref, begin, end, to_the_end in zip(ref_tensors, begins, ends, end_masks, strict=True):
        sizes += ref.shape[int(begin) :] if to_the_end else ref.shape[int(begin) : int(end)]
    return x.reshape(sizes)


@rule("expand_dims", kind="move")
def expand_dims(x, axes: Ints):
    return np.expand_dims(x, axes)


@rule("squeeze", kind="move")
def squeeze(x, axes: Ints | None = None):
    """Axes of sizes other than 1 are not removed."""
    axes = range(x.ndim) if axes is None else [a % x.ndim for a in axes]
    return np.squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


@rule("at_least_rank")
def at_least_rank(x, rank: Int, append: Bool = False):
    """Add axes of size 1 before, or after, up to a rank. Not a MIL operator; neural networks need it, which have no rank 0."""
    missing = range(rank - x.ndim)
    return np.expand_dims(x, [x.ndim + i for i in missing] if append else list(missing))


@rule("as_described")
def as_described(x, shape: Ints):
    """Reshape an output to the rank of its description, for example (1, C, H, W) to (C, H, W), if the number of elements matches.
    Not an operator of MIL; neural networks need it."""
    return x.reshape(shape) if x.ndim != len(shape) and x.size == math.prod(shape) else x


@rule("flatten2d", kind="move")
def flatten2d(x, axis: Int = 1):
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@rule("transpose", kind="move")
def transpose(x, perm: Ints):
    """`perm` applies to the last axes: coremltools transposes (C, H, W) where a neural network's image also has a batch axis."""
    lead = x.ndim - len(perm)
    return np.transpose(x, [*range(lead), *(lead + p % len(perm) for p in perm)])


@rule("reverse", kind="move")
def reverse(x, axes: Ints | None = None):
    return np.flip(x, axes)


@rule("reverse_sequence", kind="move")
def reverse_sequence(x, lengths, seq_axis: Int = 0, batch_axis: Int = 0):
    y = np.moveaxis(x, (batch_axis, seq_axis), (0, 1)).copy()
    for row, length in zip(y, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(y, (0, 1), (batch_axis, seq_axis))


@rule("concat", kind="move")
def concat(values: Values, axis: Int, interleave: Bool = False):
    if values[0].ndim == 0:
        return np.stack(values)
    if not interleave:
        return np.concatenate(values, axis)
    axis %= values[0].ndim
    sizes = list(values[0].shape)
    sizes[axis] *= len(values)
    return np.stack(values, axis + 1).reshape(sizes)


@rule("stack", kind="move")
def stack(values: Values, axis: Int):
    return np.stack(values, axis)


@rule("split", kind="move")
def split(x, axis: Int, num_splits: Int | None = None, split_sizes: Ints | None = None):
    """If the size is not divisible, which only occurs in older networks, the first parts are larger."""
    if split_sizes is None:
        return tuple(np.array_split(x, num_splits, axis))
    return tuple(np.split(x, np.cumsum(split_sizes)[:-1], axis))


@rule("tile", kind="move")
def tile(x, reps: Ints):
    return np.tile(x, reps)


@rule("pad")
def pad(x, pad: Ints, mode: Str = "constant", constant_val: Float = 0.0):
    """`pad` applies to the last axes."""
    pads = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    if mode == "constant":
        return spatial_pad(x, pads, constant_val)
    modes = {"reflect": "reflect", "replicate": "edge"}
    if mode not in modes:
        raise Unsupported(f"mode {mode}")
    return np.pad(x, [(0, 0)] * (x.ndim - len(pads)) + pads, modes[mode])


@rule("fill")
def fill(shape: Ints, value=0.0):
    return np.full(shape, value)


@rule("fill_like")
def fill_like(ref_tensor, value=0.0):
    return np.full(ref_tensor.shape, value)


@rule("range_1d")
def range_1d(end, start, step):
    """The length is computed from the bounds, not by accumulating steps."""
    count = max(0, math.ceil((float(end) - float(start)) / float(step)))
    return (start + np.arange(count, dtype=start.dtype) * step).astype(start.dtype)


@rule("band_part")
def band_part(x, lower: Int = -1, upper: Int = -1):
    row, column = np.ogrid[: x.shape[-2], : x.shape[-1]]
    inside = ((lower < 0) | (row - column <= lower)) & ((upper < 0) | (column - row <= upper))
    return np.where(inside, x, np.zeros((), x.dtype))


@rule("sliding_windows", kind="move")
def sliding_windows(x, axis: Int, size: Int, stride: Int = 1):
    axis %= x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    windows = windows[(slice(None),) * axis + (slice(None, None, stride),)]
    return np.moveaxis(windows, -1, axis + 1)


@rule("depth_to_space", kind="move")
def depth_to_space(x, block_size: Int):
    """The block position is the slower index of the channel axis, as in TensorFlow."""
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, b, b, c // b // b, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b // b, h * b, w * b)


@rule("space_to_depth", kind="move")
def space_to_depth(x, block_size: Int):
    n, c, h, w = x.shape
    b = block_size
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@rule("pixel_shuffle", kind="move")
def pixel_shuffle(x, upscale_factor: Int):
    """The block position is the faster index of the channel axis, as in PyTorch."""
    n, c, h, w = x.shape
    f = upscale_factor
    return x.reshape(n, c // f // f, f, f, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // f // f, h * f, w * f)


@rule("pixel_unshuffle", kind="move")
def pixel_unshuffle(x, downscale_factor: Int):
    n, c, h, w = x.shape
    f = downscale_factor
    return x.reshape(n, c, h // f, f, w // f, f).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * f * f, h // f, w // f)


@rule("space_to_batch", kind="move")
def space_to_batch(x, block_shape: Ints, paddings: Ints):
    x = spatial_pad(x, [(paddings[0], paddings[1]), (paddings[2], paddings[3])])
    n, c, h, w = x.shape
    p, q = block_shape
    return x.reshape(n, c, h // p, p, w // q, q).transpose(3, 5, 0, 1, 2, 4).reshape(p * q * n, c, h // p, w // q)


@rule("batch_to_space", kind="move")
def batch_to_space(x, block_shape: Ints, crops: Ints):
    n, c, h, w = x.shape
    p, q = block_shape
    y = x.reshape(p, q, n // p // q, c, h, w).transpose(2, 3, 4, 0, 5, 1).reshape(n // p // q, c, h * p, w * q)
    return spatial_pad(y, [(-crops[0], -crops[1]), (-crops[2], -crops[3])])
