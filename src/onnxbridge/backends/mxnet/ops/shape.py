"""Reshaping, concatenation, slicing, padding and tiling."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, reshaped, sliced, without_bool
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Array, Ints, Outputs

MAX_DIMS = 6
"""The maximum rank that MXNet's slice supports."""


@rule("Reshape")
def reshape(sym, data, shape: Ints, *, allowzero=0):
    if not allowzero:
        known = [d if isinstance(d, int) else 0 for d in data.shape]
        shape = [known[i] if d == 0 else d for i, d in enumerate(shape)]
    elif 0 in shape and -1 in shape:
        raise Unsupported("-1 with an empty dimension")
    if not allowzero and 0 in shape and not (data.shape and 0 in data.shape):
        return sym.Reshape(data, shape=tuple(shape))  # 0 copies the size in MXNet too
    if -1 in shape and shape.count(-1) == 1 and 0 in shape:
        raise Unsupported("-1 with an empty dimension")
    return reshaped(sym, data, shape)


@rule("Flatten")
def flatten(sym, input, *, axis=1):
    axis = axis + rank(input) if axis < 0 else axis
    if axis == 1:
        return sym.Flatten(input)
    if axis == 0:
        return reshaped(sym, input, (1, -1))
    known = all(isinstance(d, int) for d in input.shape[axis:])
    sizes = (-1, math.prod(fixed(input, range(axis, rank(input))))) if known else (math.prod(fixed(input, range(axis))), -1)
    return reshaped(sym, input, sizes)


@rule("Transpose")
def transpose(sym, data, *, perm=None):
    if rank(data) < 2:
        return data
    stored = data.constant
    if stored is not None and stored.trained and stored.source is None and rank(data) == 2 and perm != (0, 1):
        return sym.view(data.array.T, data, transposed=True)
    return permuted(sym, data, perm if perm is not None else range(rank(data))[::-1])


@rule("Squeeze")
def squeeze(sym, data, axes: Ints | None = None):
    chosen = [a % rank(data) for a in axes] if axes is not None else [i for i, d in enumerate(fixed(data)) if d == 1]
    if len(chosen) == rank(data):
        return without_bool(sym, lambda v: reshaped(sym, v, ()), data)
    return without_bool(sym, lambda v: sym._np_squeeze(v, axis=tuple(chosen)), data) if chosen else data


@rule("Unsqueeze")
def unsqueeze(sym, data, axes: Ints):
    for axis in sorted(a % (rank(data) + len(axes)) for a in axes)[not rank(data) and not sym.np_shape :]:
        data = sym.expand_dims(data, axis=axis)
    return data


@rule("Concat")
def concat(sym, *inputs, axis):
    filled = [i for i in inputs if i.shape is None or 0 not in i.shape] or inputs[:1]
    if len(filled) == 1:
        return filled[0]
    return without_bool(sym, lambda *v: sym.Concat(*v, dim=axis), *filled)


@rule("Split")
def split(sym, input, split: Ints | None = None, *, axis=0, num_outputs=None):
    if split is None:
        (size,) = fixed(input, [axis])
        part = -(-size // num_outputs)
        split = [min(part, size - i * part) for i in range(num_outputs)]
    ends = np.cumsum([0, *split]).tolist()
    return tuple(sliced(sym, input, axis, a, b) for a, b in zip(ends, ends[1:], strict=False))


@rule("Slice")
def slice_(sym, data, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None):
    if rank(data) > MAX_DIMS:
        raise Unsupported(f"more than {MAX_DIMS} dimensions")
    axes = range(len(starts)) if axes is None else [a % rank(data) for a in axes]
    begin, end, step = ([None] * rank(data) for _ in range(3))
    for axis, a, b, s in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
        size, step[axis] = data.shape[axis], s
        if isinstance(size, int):
            first, last, _ = slice(a, b, s).indices(size)
            begin[axis], end[axis] = first, None if last < 0 else last
            if (last - first) * s <= 0:
                begin[axis] = end[axis] = 0
                step[axis] = 1
        elif s == 1 and -(2**30) < a < 2**30:
            begin[axis], end[axis] = a, None if b >= 2**30 else b
        else:
            raise Unsupported("a step along an axis of dynamic size")
    return sym.slice(data, begin=tuple(begin), end=tuple(end), step=tuple(step))


@rule("Expand")
def expand(sym, input, shape: Ints):
    if all(isinstance(d, int) for d in input.shape):
        return sym._npi_broadcast_to(input, shape=tuple(np.broadcast_shapes(input.shape, shape)))
    ones = np.ones(shape, input.dtype if input.dtype != BOOL else np.uint8)
    return without_bool(sym, lambda v: sym._npi_multiply(v, ones), input)


@rule("Tile")
def tile(sym, input, repeats: Ints):
    """One axis at a time: MXNet's operator limits the rank."""
    for axis, count in enumerate(repeats):
        if count != 1:
            input = sym.tile(input, reps=tuple(count if i == axis else 1 for i in range(rank(input))))
            input.shape = (None,) * len(repeats)
    return input


def padded(sym, x, pads, mode="constant", value=0.0):
    """Padding in ONNX's order: before each axis, then after each; negative amounts crop."""
    count = len(pads) // 2
    before, after = pads[:count], pads[count:]
    for axis, (a, b) in enumerate(zip(before, after, strict=True)):
        if a < 0 or b < 0:
            x = sliced(sym, x, axis, max(-a, 0), b if b < 0 else None)
    widths = tuple((max(a, 0), max(b, 0)) for a, b in zip(before, after, strict=True))
    if not any(map(any, widths)):
        return x
    if mode == "constant":
        return sym._npi_pad(x, pad_width=widths, mode=mode, constant_value=value)
    return sym._npi_pad(x, pad_width=widths, mode=mode)


@rule("Pad")
def pad(sym, data, pads: Ints, constant_value=None, axes: Ints | None = None, *, mode="constant"):
    if mode not in ("constant", "edge", "reflect"):
        raise Unsupported(f"MXNet does not support mode={mode!r}")
    full = [0] * (2 * rank(data))
    for i, axis in enumerate(range(rank(data)) if axes is None else [a % rank(data) for a in axes]):
        full[axis], full[axis + rank(data)] = pads[i], pads[i + len(pads) // 2]
    known = np.zeros(()) if constant_value is None else constant_value.array
    found = without_bool(sym, lambda v: padded(sym, v, full, mode, 0.0 if known is None else float(known.item())), data)
    if known is None:  # the padding amounts are known, the value is not
        inside = np.pad(np.ones(fixed(data), bool), list(zip(full[: rank(data)], full[rank(data) :], strict=True)))
        return sym._npi_where(sym.constant(inside), found, constant_value)
    return found


@rule("Shape")
def shape(sym, data, *, start=0, end=None):
    if not rank(data):
        return np.zeros(0, np.int64)
    sizes = sym.shape_array(data)
    first, last, _ = slice(start, end).indices(rank(data))
    return sizes if (first, last) == (0, rank(data)) else sym.slice_axis(sizes, axis=0, begin=first, end=max(first, last))


@rule("Size")
def size(sym, data):
    return sym._np_squeeze(sym.size_array(data), axis=(0,)) if rank(data) else np.int64(1)


@rule("DepthToSpace")
def depth_to_space(sym, input, *, blocksize, mode="DCR"):
    if mode == "DCR":
        return sym.depth_to_space(input, block_size=blocksize)
    n, c, h, w = fixed(input)
    b = blocksize
    split = sym.Reshape(input, shape=(n, c // (b * b), b, b, h, w))
    return sym.Reshape(sym.transpose(split, axes=(0, 1, 4, 2, 5, 3)), shape=(n, c // (b * b), h * b, w * b))


@rule("SpaceToDepth")
def space_to_depth(sym, input, *, blocksize):
    return sym.space_to_depth(input, block_size=blocksize)


@rule("Constant")
def constant(sym, *, value=None, value_float=None, value_floats=None, value_int=None, value_ints=None):
    if value is not None:
        return np.asarray(value)
    if value_float is not None or value_floats is not None:
        return np.asarray(value_float if value_floats is None else value_floats, np.float32)
    return np.asarray(value_int if value_ints is None else value_ints, np.int64)


@rule("ConstantOfShape")
def constant_of_shape(sym, input: Ints, *, value=None):
    kind = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return sym._npi_full(shape=tuple(input), dtype=kind.dtype, value=kind.item())


@rule("EyeLike")
def eye_like(sym, input, *, dtype=None, k=0):
    kind = input.dtype if dtype is None else np.dtype(ir.DataType(dtype).numpy())
    return np.eye(*fixed(input), k=k, dtype=kind)


@rule("Dropout")
def dropout(sym, data, ratio: Array | None = None, training_mode: Array | None = None, *, seed=None, used: Outputs):
    if training_mode is not None and bool(training_mode.item()):
        if any(used[1:]):
            raise Unsupported("the mask of a Dropout with training_mode=True")
        return sym.Dropout(data, p=0.5 if ratio is None else float(ratio.item()), mode="always")
    return data, cast(sym, sym.ones_like(data), BOOL)
