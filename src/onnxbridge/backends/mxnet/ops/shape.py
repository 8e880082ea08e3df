"""Reshaping, concatenation, slicing, padding and tiling."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.dynamic_sizes import HINT, declared_shape, declared_sizes, is_static, ones_of, reshape_codes
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, permuted, rank, reshaped, sliced, typed, without_bool
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Array, Ints, Outputs

MAX_DIMS = 6
"""The maximum rank that MXNet's slice supports."""


@rule("Reshape")
def reshape(sym, data, shape, *, allowzero=0):
    if shape.array is None:
        return _reshaped_at_run_time(sym, data)
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


def _reshaped_at_run_time(sym, data):
    """To the declared shape of the result, by the sizes of an array that has it where Reshape cannot say it."""
    shape = declared_shape(sym, "shape")
    if is_static(shape):
        return reshaped(sym, data, shape)
    codes = reshape_codes(data, shape)
    if codes is not None:
        return sym.Reshape(data, shape=tuple(codes))
    return without_bool(sym, lambda v: sym.reshape_like(v, ones_of(sym, shape, np.float32)), data)


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
def split(sym, input, split: Ints | None = None, *, axis=0, num_outputs=None):
    if split is None:
        (size,) = fixed(input, [axis])
        part = -(-size // num_outputs)
        split = [min(part, size - i * part) for i in range(num_outputs)]
    ends = np.cumsum([0, *split]).tolist()
    return tuple(sliced(sym, input, axis, a, b) for a, b in zip(ends, ends[1:], strict=False))


@rule("Slice")
def slice_(sym, data, starts, ends, axes=None, steps=None):
    known = [v is None or v.array is not None for v in (starts, ends, axes, steps)]
    if not all(known):
        return _sliced_at_run_time(sym, data, starts, axes, steps)
    starts, ends, axes, steps = (None if v is None else v.array.reshape(-1).tolist() for v in (starts, ends, axes, steps))
    axes = range(len(starts)) if axes is None else [a % rank(data) for a in axes]
    begin, end, step = ([None] * rank(data) for _ in range(3))
    for axis, a, b, s in zip(axes, starts, ends, steps or [1] * len(starts), strict=True):
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
            raise Unsupported("a step along an axis of dynamic size")
    if rank(data) > MAX_DIMS:
        return _sliced_by_axis(sym, data, begin, end, step)
    return without_bool(sym, lambda v: sym.slice(v, begin=tuple(begin), end=tuple(end), step=tuple(step)), data)


def _sliced_at_run_time(sym, data, starts, axes, steps):
    """Every axis by the positions of its elements, as many as the result has."""
    shape = declared_shape(sym, "starts")
    if not is_static(shape):
        return _first_elements(sym, data, shape, starts, steps)
    for axis, (size, count) in enumerate(zip(fixed(data), shape, strict=True)):
        start, step = (_for_axis(sym, v, axes, axis, rank(data), other) for v, other in ((starts, 0), (steps, 1)))
        start = _where(sym, _less(sym, start, 0), sym._npi_add(start, np.array([size])), start)
        highest = _where(sym, _less(sym, step, 0), np.array([size - 1]), np.array([size]))
        start = typed(sym._npi_minimum(sym._npi_maximum(start, np.array([0])), highest), np.int64)
        data = taken(sym, data, axis, typed(sym._npi_add(start, sym._npi_multiply(np.arange(count), step)), np.int64), count)
    return data


def _first_elements(sym, data, shape, starts, steps):
    """The first elements of each axis, as many as the result has."""
    for given, usual, name in ((starts, 0, "starts"), (steps, 1, "steps")):
        if given is not None and (given.array is None or np.any(given.array != usual)):
            raise Unsupported(f"input {name!r} must be known when converting", HINT)
    axes = [axis for axis, (size, count) in enumerate(zip(data.shape, shape, strict=True)) if size != count]
    if not axes:
        return data
    like = ones_of(sym, [shape[axis] if axis in axes else 1 for axis in range(rank(data))], np.float32)
    return without_bool(sym, lambda v: sym.slice_like(v, like, axes=tuple(axes)), data)


def _less(sym, x, number):
    return typed(sym._npi_less(x, np.array([number])), BOOL)


def _where(sym, condition, x, y):
    return typed(sym._npi_where(condition, x, y), np.int64)


def _for_axis(sym, values, axes, axis, count, otherwise):
    """The element of an integer vector that is for an axis, as a vector of one; `otherwise` if there is none."""
    if values is None:
        return sym.literal(np.array([otherwise]))
    values = cast(sym, values, np.int64)
    if axes is None or axes.array is not None:
        listed = list(range(fixed(values, [0])[0])) if axes is None else [a % count for a in axes.array.reshape(-1).tolist()]
        if axis not in listed:
            return sym.literal(np.array([otherwise]))
        return typed(sliced(sym, values, 0, listed.index(axis), listed.index(axis) + 1), np.int64)
    wrapped = typed(sym._npi_mod(cast(sym, axes, np.int64), np.array([count])), np.int64)
    here = typed(sym._npi_equal(wrapped, np.array([axis])), BOOL)
    gaps = _where(sym, here, sym._npi_subtract(values, np.array([otherwise])), np.array([0]))
    total = typed(sym._np_sum(gaps, axis=(0,), keepdims=True), np.int64)
    return typed(sym._npi_add(total, np.array([otherwise])), np.int64)


def taken(sym, x, axis, positions, count):
    """The elements at positions along an axis."""
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if not count:
        return typed(sliced(sym, x, axis, 0, 0), x.dtype, shape)
    return typed(without_bool(sym, lambda v: sym.take(v, positions, axis=axis, mode="clip"), x), x.dtype, shape)


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
        expected = declared_shape(sym, "shape")
        kind = np.uint8 if input.dtype == BOOL else input.dtype
        return without_bool(sym, lambda v: sym._npi_multiply(v, ones_of(sym, expected, kind)), input)
    shape = shape.array.reshape(-1).tolist()
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
    filler = {"constant_value": value} if mode == "constant" else {}
    if count == 1:  # MXNet pads no vectors
        row = sym._npi_pad(sym.expand_dims(x, axis=0), pad_width=((0, 0), *widths), mode=mode, **filler)
        return sym.Reshape(row, shape=(-1,))
    return sym._npi_pad(x, pad_width=widths, mode=mode, **filler)


@rule("Pad")
def pad(sym, data, pads, constant_value=None, axes=None, *, mode="constant"):
    if pads.array is None or (axes is not None and axes.array is None) or mode == "wrap":
        return _padded_at_run_time(sym, data, pads, constant_value, axes, mode)
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


def _padded_at_run_time(sym, data, pads, constant_value, axes, mode):
    """Every axis by the positions of its elements in the data."""
    inside = None
    count = fixed(pads, [0])[0] // 2
    before = typed(sliced(sym, cast(sym, pads, np.int64), 0, 0, count), np.int64, (count,))
    for axis, (size, total) in enumerate(zip(fixed(data), declared_sizes(sym, "pads"), strict=True)):
        shift = _for_axis(sym, before, axes, axis, rank(data), 0)
        at = typed(sym._npi_subtract(np.arange(total), shift), np.int64)
        if mode == "wrap":
            at = typed(sym._npi_mod(at, np.array([size])), np.int64)
        elif mode == "reflect":
            period = max(2 * (size - 1), 1)
            at = typed(sym._npi_mod(at, np.array([period])), np.int64)
            at = _where(sym, _less(sym, at, size), at, sym._npi_subtract(np.array([period]), at))
        elif mode == "constant":
            negative = typed(sym.negative(at), np.int64)
            fits = sym._npi_multiply(*(cast(sym, _less(sym, x, n), np.int32) for x, n in ((at, size), (negative, 1))))
            wide = tuple(-1 if a == axis else 1 for a in range(rank(data)))
            fits = typed(sym.Reshape(fits, shape=wide), np.int32)
            inside = fits if inside is None else typed(sym._npi_multiply(inside, fits), np.int32)
        data = taken(sym, data, axis, at, total)
    if inside is None:
        return data
    filler = np.zeros(1, data.dtype) if constant_value is None else constant_value
    if data.dtype == BOOL:
        filler = np.zeros(1, np.uint8) if constant_value is None else cast(sym, constant_value, np.uint8)
    return without_bool(sym, lambda v: sym._npi_where(cast(sym, inside, BOOL), v, filler), data)


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
    shape = declared_shape(sym, "input")
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
