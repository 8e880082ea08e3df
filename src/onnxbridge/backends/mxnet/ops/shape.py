"""Reshaping, concatenation, slicing, padding and tiling."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import computed_sizes as computed
from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.computed_slices import (
    padded_at_run_time,
    parts_at_run_time,
    sliced_at_run_time,
    tiled_at_run_time,
)  # fmt: skip
from onnxbridge.backends.mxnet.ops.dynamic_sizes import declared, is_static, ones_of, reshape_codes, result_sizes
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, reshaped, sliced, typed, without_bool
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Array, Ints, Outputs

MAX_DIMS = 6
"""The maximum rank that MXNet's slice supports."""


@rule("Reshape")
def reshape(sym, data, shape, *, allowzero=0):
    if shape.array is None:
        return _reshaped_at_run_time(sym, data, shape, allowzero)
    shape = shape.array.reshape(-1).tolist()
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


def _reshaped_at_run_time(sym, data, shape, allowzero):
    """By sizes that Reshape can infer, or by those of an array that has the result's shape."""
    sizes = declared(sym)
    if sizes is not None and is_static(sizes):
        return reshaped(sym, data, sizes)
    codes = None if sizes is None else reshape_codes(data, sizes)
    if codes is not None:
        return sym.Reshape(data, shape=tuple(codes))

    def size_along(axis):
        size = computed.element(sym, shape, axis)
        if not allowzero and axis < rank(data):
            size = computed.where(sym, typed(sym._npi_equal(size, np.array([0])), BOOL), computed.size_of(sym, data, axis), size)
        return computed.where(sym, computed.less(sym, size, 0), inferred(), size)

    def inferred():
        """The size that -1 stands for; the product of all sizes contains that -1."""
        vector = cast(sym, shape, np.int64)
        if not allowzero:
            copied = np.array([axis < rank(data) for axis in range(len(sizes))])
            own = [computed.size_of(sym, data, a) if c else np.ones(1, np.int64) for a, c in enumerate(copied)]
            own = typed(sym.Concat(*own, dim=0), np.int64) if len(own) > 1 else own[0]
            vector = typed(sym._npi_where(typed(sym._npi_equal(vector, np.array([0])), BOOL), own, vector), np.int64)
        others = computed.maximum(sym, computed.subtract(sym, 0, computed.product(sym, vector)), 1)
        return computed.ceil_divided(sym, typed(sym.size_array(data), np.int64, (1,)), others)

    like = ones_of(sym, result_sizes(sym, size_along), np.float32)
    return without_bool(sym, lambda v: sym.reshape_like(v, like), data)


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
    weight = data.constant
    if weight is not None and weight.trained and weight.source is None and rank(data) == 2 and tuple(perm or (1, 0)) == (1, 0):
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
def split(sym, input, split=None, *, axis=0, num_outputs=None):
    axis %= rank(input)
    if split is not None and split.array is not None:
        sizes = split.array.reshape(-1).tolist()
    elif split is None and isinstance(input.shape[axis], int):
        part = -(-input.shape[axis] // num_outputs)
        sizes = [min(part, input.shape[axis] - i * part) for i in range(num_outputs)]
    elif split is None:
        size = computed.size_of(sym, input, axis)
        part = computed.ceil_divided(sym, size, computed.integer(sym, num_outputs))
        rest = [computed.subtract(sym, size, computed.multiply(sym, part, i)) for i in range(num_outputs)]
        return parts_at_run_time(sym, input, axis, [computed.minimum(sym, part, r) for r in rest])
    else:
        shapes = [None if s is None else s[axis] for s in sym.expected]
        if all(isinstance(d, int) for d in shapes):
            sizes = shapes
        else:
            return parts_at_run_time(sym, input, axis, [computed.element(sym, split, i) for i in range(len(shapes))])
    ends = np.cumsum([0, *sizes]).tolist()
    return tuple(sliced(sym, input, axis, a, b) for a, b in zip(ends, ends[1:], strict=False))


@rule("Slice")
def slice_(sym, data, starts, ends, axes=None, steps=None):
    known = [v is None or v.array is not None for v in (starts, ends, axes, steps)]
    if not all(known):
        return sliced_at_run_time(sym, data, starts, ends, axes, steps)
    bounds = [None if v is None else v.array.reshape(-1).tolist() for v in (starts, ends, axes, steps)]
    listed = range(len(bounds[0])) if axes is None else [a % rank(data) for a in bounds[2]]
    begin, end, step = ([None] * rank(data) for _ in range(3))
    for axis, a, b, s in zip(listed, bounds[0], bounds[1], bounds[3] or [1] * len(bounds[0]), strict=True):
        size, step[axis] = data.shape[axis], s
        if isinstance(size, int):
            # going back from before the first element has the first element in ONNX, nothing in Python
            first, last, _ = slice(max(a, -size), b, s).indices(size)
            begin[axis], end[axis] = first, None if last < 0 else last
            if (last - first) * s <= 0:
                begin[axis] = end[axis] = 0
                step[axis] = 1
        elif s == 1 and -(2**30) < a < 2**30:
            begin[axis], end[axis] = a, None if b >= 2**30 else b
        elif s < 0 and (a == -1 or a >= 2**30) and b <= -(2**30):
            pass  # the whole axis backwards
        else:
            return sliced_at_run_time(sym, data, starts, ends, axes, steps)
    if rank(data) > MAX_DIMS:
        return _sliced_by_axis(sym, data, begin, end, step)
    return without_bool(sym, lambda v: sym.slice(v, begin=tuple(begin), end=tuple(end), step=tuple(step)), data)


def _sliced_by_axis(sym, data, begin, end, step):
    """One axis at a time, which has no limit of dimensions."""
    for axis, (a, b, s) in enumerate(zip(begin, end, step, strict=True)):
        if s not in (1, None):
            raise Unsupported(f"steps over more than {MAX_DIMS} dimensions")
        if (a, b) not in ((None, None), (0, data.shape[axis])):
            data = sliced(sym, data, axis, a, b)
    return data


@rule("Expand")
def expand(sym, input, shape):
    if shape.array is None:
        sizes = declared(sym)
        if sizes is None or None in sizes:  # an axis that the input alone has may be of size 1 here
            count = fixed(shape, [0])[0]
            targets = [computed.element(sym, shape, axis) for axis in range(count)]
            known = [None] * count if sizes is None else sizes[len(sizes) - count :]
            sizes = [t if d is None else d for t, d in zip(targets, known, strict=True)]
        kind = np.uint8 if input.dtype == BOOL else input.dtype
        return without_bool(sym, lambda v: sym._npi_multiply(v, ones_of(sym, sizes, kind)), input)
    shape = shape.array.reshape(-1).tolist()
    if all(isinstance(d, int) for d in input.shape):
        return sym._npi_broadcast_to(input, shape=tuple(np.broadcast_shapes(input.shape, shape)))
    ones = np.ones(shape, input.dtype if input.dtype != BOOL else np.uint8)
    return without_bool(sym, lambda v: sym._npi_multiply(v, ones), input)


@rule("Tile")
def tile(sym, input, repeats):
    """One axis at a time: MXNet's operator limits the rank."""
    if repeats.array is None:
        return tiled_at_run_time(sym, input, repeats)
    counts = repeats.array.reshape(-1).tolist()
    for axis, count in enumerate(counts):
        if count != 1:
            input = sym.tile(input, reps=tuple(count if i == axis else 1 for i in range(rank(input))))
            input.shape = (None,) * len(counts)
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
    filler = {"constant_value": value} if mode == "constant" else {}
    if count == 1:  # MXNet pads no vectors
        row = sym._npi_pad(sym.expand_dims(x, axis=0), pad_width=((0, 0), *widths), mode=mode, **filler)
        return sym.Reshape(row, shape=(-1,))
    return sym._npi_pad(x, pad_width=widths, mode=mode, **filler)


@rule("Pad")
def pad(sym, data, pads, constant_value=None, axes=None, *, mode="constant"):
    if pads.array is None or (axes is not None and axes.array is None) or mode == "wrap":
        return padded_at_run_time(sym, data, pads, constant_value, axes, mode)
    pads = pads.array.reshape(-1).tolist()
    axes = None if axes is None else axes.array.reshape(-1).tolist()
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


@rule("OptionalHasElement")
def optional_has_element(sym, input=None):
    """Optionals are tensors here, so that it is known whether there is one."""
    return np.array(input is not None)


@rule("OptionalGetElement")
def optional_get_element(sym, input):
    return input


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
def constant_of_shape(sym, input, *, value=None):
    kind = np.zeros(1, np.float32) if value is None else np.asarray(value)
    if input.array is not None:
        return sym._npi_full(shape=tuple(input.array.reshape(-1).tolist()), dtype=kind.dtype, value=kind.item())
    shape = result_sizes(sym, lambda axis: computed.element(sym, input, axis))
    if is_static(shape):
        return sym._npi_full(shape=tuple(shape), dtype=kind.dtype, value=kind.item())
    fill = kind.reshape(-1)[:1]
    return without_bool(sym, lambda v: sym._npi_multiply(ones_of(sym, shape, v.dtype), v), sym.literal(fill))


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
