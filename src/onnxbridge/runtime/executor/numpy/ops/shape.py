"""Operators that compute or read shapes, or rearrange elements."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Int, Ints
from onnxbridge.runtime.executor.numpy.dtypes import dtype_of, wide
from onnxbridge.runtime.executor.numpy.ops import rule


@rule("Identity", kind="view")
def identity(input):
    return input


@rule("Constant")
def constant(
    *,
    value=None,
    value_float=None,
    value_floats=None,
    value_int=None,
    value_ints=None,
    value_string=None,
    value_strings=None,
    sparse_value=None,
):
    typed = (
        (value, None),
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
        (value_string, object),
        (value_strings, object),
    )
    for number, dtype in typed:
        if number is not None:
            return np.asarray(number, dtype)
    raise Unsupported("a sparse constant" if sparse_value is not None else "no value")


@rule("ConstantOfShape")
def constant_of_shape(input: Ints, *, value=None):
    fill = np.zeros(1, np.float32) if value is None else value
    claim(input, fill.dtype)
    return np.full(input, fill.reshape(()), fill.dtype)


@rule("Shape", kind="shape")
def shape(data, *, start=0, end=None):
    return np.array(data.shape[start:end], np.int64)


@rule("Size", kind="shape")
def size(data):
    return np.array(data.size, np.int64)


@rule("Range")
def range_(start, limit, delta):
    step = delta.reshape(())
    if step == 0:
        raise ValueError("delta is 0")
    first, last, by = (wide(v.reshape(())).item() for v in (start, limit, delta))
    count = int(max(0, np.ceil((last - first) / by) if isinstance(by, float) else -((first - last) // by)))
    claim([count], start.dtype)
    # In floating point every element is computed from the first, so that rounding does not add up.
    counter = np.arange(count, dtype=np.float64 if isinstance(by, float) else start.dtype)
    return (first + counter * by).astype(start.dtype)


@rule("Reshape", kind="view")
def reshape(data, shape: Ints, *, allowzero=0):
    if not allowzero:
        shape = [data.shape[i] if n == 0 else n for i, n in enumerate(shape)]
    elif 0 in shape and -1 in shape:
        raise ValueError("with allowzero a shape cannot hold both 0 and -1")
    if any(n < -1 for n in shape):
        raise ValueError(f"a shape cannot hold {min(shape)}")
    return data.reshape(_inferred(data.size, shape))


def _inferred(size, shape):
    """The shape with its -1 inferred, also where other dimensions are 0."""
    if -1 not in shape:
        return shape
    known = int(np.prod([n for n in shape if n != -1], dtype=object))
    return [(size // known if known else 0) if n == -1 else n for n in shape]


@rule("Flatten", kind="view")
def flatten(input, *, axis=1):
    axis = axis + input.ndim if axis < 0 else axis
    rows = int(np.prod(input.shape[:axis], dtype=object))
    return input.reshape(rows, int(np.prod(input.shape[axis:], dtype=object)))


@rule("Squeeze", kind="view")
def squeeze(data, axes: Ints | None = None):
    return np.squeeze(data, axes)


@rule("Unsqueeze", kind="view")
def unsqueeze(data, axes: Ints):
    claim((1,) * (data.ndim + len(axes)), data.dtype)
    return np.expand_dims(data, axes)


@rule("Transpose", kind="view")
def transpose(data, *, perm=None):
    return np.transpose(data, perm)


@rule("Concat")
def concat(*inputs, axis):
    claim([sum(x.size for x in inputs)], inputs[0].dtype)
    return np.concatenate(inputs, axis)


@rule("Split", kind="view")
def split(input, split: Ints | None = None, *, axis=0, num_outputs=None):
    length = input.shape[axis]
    if split is None:
        if num_outputs is None:
            raise Unsupported("neither split nor num_outputs is given")
        each = -(-length // num_outputs)
        split = [max(0, min(each, length - i * each)) for i in range(num_outputs)]
    if sum(split) != length or any(n < 0 for n in split):
        raise ValueError(f"the parts {list(split)} do not add up to {length}")
    return tuple(np.split(input, np.cumsum(split)[:-1], axis))


@rule("Expand")
def expand(input, shape: Ints):
    """A view; the budget is checked for the memory of a copy."""
    claim((1,) * len(shape), input.dtype)
    full = np.broadcast_shapes(input.shape, tuple(shape))
    claim(full, input.dtype)
    return np.broadcast_to(input, full)


@rule("Tile")
def tile(input, repeats: Ints):
    claim([n * r for n, r in zip(input.shape, repeats, strict=True)], input.dtype)
    return np.tile(input, repeats)


@rule("EyeLike")
def eye_like(input, *, dtype=None, k=0):
    kind = input.dtype if dtype is None else dtype_of(dtype)
    claim(input.shape, kind)
    return np.eye(*input.shape, k=k, dtype=np.int8).astype(kind)


@rule("Trilu")
def trilu(input, k: Int = 0, *, upper=1):
    rows, columns = (np.arange(n) for n in input.shape[-2:])
    offset = columns[None, :] - rows[:, None]
    return np.where(offset >= k if upper else offset <= k, input, np.zeros((), input.dtype))


@rule("DepthToSpace")
def depth_to_space(input, *, blocksize, mode="DCR"):
    n, c, h, w = input.shape
    b = blocksize
    if mode == "DCR":
        x = input.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        x = input.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (b * b), h * b, w * b)


@rule("SpaceToDepth")
def space_to_depth(input, *, blocksize):
    n, c, h, w = input.shape
    b = blocksize
    x = input.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * b * b, h // b, w // b)


_PAD_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _filling(dtype):
    """What is padded with by default: zero, False or the empty string."""
    return "" if dtype.kind == "O" else np.zeros((), dtype)


@rule("Pad")
def pad(data, pads: Ints, constant_value=None, axes: Ints | None = None, *, mode="constant"):
    axes = range(data.ndim) if axes is None else [a % data.ndim for a in axes]
    amounts = [(0, 0)] * data.ndim
    for i, a in enumerate(axes):
        amounts[a] = (pads[i], pads[i + len(axes)])
    cut = tuple(slice(max(0, -b), n - max(0, -e)) for n, (b, e) in zip(data.shape, amounts, strict=True))
    grown = [(max(0, b), max(0, e)) for b, e in amounts]
    x = data[cut]
    claim([n + b + e for n, (b, e) in zip(x.shape, grown, strict=True)], x.dtype)
    if mode == "constant":
        fill = _filling(x.dtype) if constant_value is None else constant_value.reshape(())
        out = np.full([n + b + e for n, (b, e) in zip(x.shape, grown, strict=True)], fill, x.dtype)
        out[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, grown, strict=True))] = x
        return out
    if mode not in _PAD_MODES:
        raise Unsupported(f"mode {mode!r}")
    if x.size == 0:
        raise ValueError(f"nothing to pad with: the data has shape {list(x.shape)}")
    return np.pad(x, grown, mode=_PAD_MODES[mode])


@rule("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    x = np.moveaxis(input, (time_axis, batch_axis), (0, 1))
    steps = np.arange(x.shape[0])[:, None]
    order = np.where(steps < sequence_lens, sequence_lens - 1 - steps, steps)
    y = x[order, np.arange(x.shape[1])[None, :]]
    return np.moveaxis(y, (0, 1), (time_axis, batch_axis))


@rule("CenterCropPad")
def center_crop_pad(input_data, shape: Ints, *, axes=None):
    x = input_data
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, shape, strict=True):
        have = x.shape[axis]
        if wanted > have:
            before = (wanted - have) // 2
            amounts = [(0, 0)] * x.ndim
            amounts[axis] = (before, wanted - have - before)
            claim([n + sum(a) for n, a in zip(x.shape, amounts, strict=True)], x.dtype)
            x = np.pad(x, amounts, constant_values=_filling(x.dtype))
        elif wanted < have:
            start = (have - wanted) // 2
            x = np.take(x, np.arange(start, start + wanted), axis)
    return x
