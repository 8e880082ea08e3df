"""Shape operators: what was an attribute became an input, operator by operator."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import dtype_of, fixed_shape, known, rank_of
from onnxbridge.rules import Array, Ints, Outputs


@up("Squeeze", to=13)
def squeeze(op, data, *, axes=None):
    return op.Squeeze(data, None if axes is None else list(axes))


@down("Squeeze", to=12)
def squeeze_axes(op, data, axes: Ints | None = None):
    return op.Squeeze(data, axes=axes)


@up("Unsqueeze", to=13)
def unsqueeze(op, data, *, axes):
    return op.Unsqueeze(data, list(axes))


@down("Unsqueeze", to=12)
def unsqueeze_axes(op, data, axes: Ints):
    return op.Unsqueeze(data, axes=axes)


@up("Reshape", to=5)
def reshape(op, data, *, shape=()):
    return op.Reshape(data, np.array(shape, np.int64))


@down("Reshape", to=13)
def reshape_zero(op, data, shape, *, allowzero=0):
    """A 0 in the shape copies the input's size there, unless allowzero; one that is not there needs no such flag."""
    if allowzero:
        sizes = known(shape)
        if sizes is None or 0 in sizes:
            raise Unsupported("opset 14 added allowzero=1")
    return op.Reshape(data, shape)


@up("Tile", to=6)
def tile(op, input, tiles: Array, axis: Array):
    repeats = [1] * rank_of(input)
    repeats[int(axis.reshape(()))] = int(tiles.reshape(()))
    return op.Tile(input, np.array(repeats, np.int64))


@up("Concat", to=4)
def concat(op, *inputs, axis=1):
    return op.Concat(*inputs, axis=axis)


@up("Split", to=2)
def split_input(op, input, split: Ints | None = None, *, axis=0, outputs: Outputs):
    return op.Split(input, axis=axis, split=split, outputs=len(outputs))


@up("Split", to=13)
def split(op, input, *, axis=0, split=None, outputs: Outputs):
    return op.Split(input, None if split is None else list(split), axis=axis, outputs=len(outputs))


@up("Split", to=18)
def split_equally(op, input, split=None, *, axis=0, outputs: Outputs):
    return op.Split(input, split, axis=axis, num_outputs=len(outputs) if split is None else None, outputs=len(outputs))


@down("Split", to=17)
def split_parts(op, input, split=None, *, axis=0, num_outputs=None, outputs: Outputs):
    """Without `split` the parts were equal; from opset 18 on the last one may be smaller."""
    if split is None:
        size = input.shape[axis] if input.shape is not None else None
        most = np.array([num_outputs - 1], np.int64)
        if isinstance(size, int):
            part = -(-size // num_outputs)
            split = op.constant(np.array([part] * (num_outputs - 1) + [size - part * (num_outputs - 1)], np.int64))
        else:
            size = op.Gather(op.Shape(input), np.array([axis], np.int64))
            part = op.Div(op.Add(size, most), np.array([num_outputs], np.int64))
            split = op.Concat(*[part] * (num_outputs - 1), op.Sub(size, op.Mul(part, most)), axis=0)
    return op.Split(input, split, axis=axis, outputs=len(outputs))


@down("Split", to=12)
def split_sizes(op, input, split: Ints | None = None, *, axis=0, outputs: Outputs):
    return op.Split(input, split=split, axis=axis, outputs=len(outputs))


@up("Pad", to=2)
def paddings(op, data, *, paddings, mode="constant", value=0.0):
    return op.Pad(data, pads=paddings, mode=mode, value=value)


@up("Pad", to=11)
def pad(op, data, *, pads, mode="constant", value=0.0):
    constant = None if mode != "constant" else np.array(value, dtype_of(data).numpy())
    return op.Pad(data, list(pads), constant, mode=mode)


@down("Pad", to=17)
def pad_axes(op, data, pads, constant_value=None, axes: Ints | None = None, *, mode="constant"):
    if axes is None:
        return op.Pad(data, pads, constant_value, mode=mode)
    rank = rank_of(data)
    # each padding is moved to its axis: a gather from the paddings with a zero behind them
    where = [len(axes) * 2] * (2 * rank)
    for i, axis in enumerate(axes):
        where[axis % rank], where[axis % rank + rank] = i, i + len(axes)
    if np.prod(np.shape(axes)) != len({a % rank for a in axes}):
        raise Unsupported("an axis is padded twice")
    whole = op.Gather(op.Concat(pads, np.zeros(1, np.int64), axis=0), np.array(where, np.int64), axis=0)
    return op.Pad(data, whole, constant_value, mode=mode)


@down("Pad", to=10)
def pad_values(op, data, pads: Ints, constant_value: Array | None = None, *, mode="constant"):
    if dtype_of(data).name not in ("FLOAT", "FLOAT16", "DOUBLE"):
        raise Unsupported("opset 11 added integers")
    value = 0.0 if constant_value is None else float(constant_value.reshape(()))
    if np.isfinite(value) and float(np.float32(value)) != value:
        raise Unsupported(f"the padding {value!r} is not a float32, as the attribute is")
    return op.Pad(data, pads=pads, value=value, mode=mode)


@down("Shape", to=14)
def shape_part(op, data, *, start=0, end=None):
    whole = op.Shape(data)
    if start == 0 and end is None:
        return whole
    if start < 0 or (end is not None and end < 0):
        rank = rank_of(data)
        start, end = max(start + rank, 0) if start < 0 else start, end if end is None or end >= 0 else max(end + rank, 0)
    return op.Slice(whole, [start], [np.iinfo(np.int64).max if end is None else end], [0])


@up("Shape", to=15)
def shape(op, data):
    return op.Shape(data)


def _fixed_slice(op, data, starts, ends, axes):
    return op.Slice(data, list(starts), list(ends), None if axes is None else list(axes))


@up("Slice", to=10)
def slice_(op, data, *, starts, ends, axes=None):
    return _fixed_slice(op, data, starts, ends, axes)


@down("Slice", to=9)
def slice_attributes(op, data, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None):
    if steps is not None and any(s != 1 for s in steps):
        raise Unsupported("opset 10 added steps other than 1")
    return op.Slice(data, starts=starts, ends=ends, axes=axes)


@down("Expand", to=7)
def expand(op, input, shape: Ints):
    """Before Expand there is only Tile, which needs to know both sizes."""
    have = fixed_shape(input)
    rank = max(len(have), len(shape))
    have = [1] * (rank - len(have)) + have
    want = [1] * (rank - len(shape)) + list(shape)
    repeats = [w if h == 1 else 1 for h, w in zip(have, want, strict=True)]
    return op.Tile(op.Reshape(input, np.array(have, np.int64)), np.array(repeats, np.int64))


@down("ConstantOfShape", to=8)
def constant_of_shape(op, input, *, value=None):
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return op.Expand(op.constant(value.reshape(())), input)
