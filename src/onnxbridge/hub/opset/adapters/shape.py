"""Shape operators, whose attributes became inputs in later versions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.opset.adapters import down, flattened, padding, up
from onnxbridge.hub.opset.known_values import dtype_of, fixed_shape, known, rank_of
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
    """A 0 in the shape copied the input's size; with allowzero=1 it is a size of 0 and the result is empty."""
    sizes = known(shape) if allowzero else None
    if not allowzero or (sizes is not None and 0 not in sizes):
        return op.Reshape(data, shape)

    def empty():
        return op.Cast(op.ConstantOfShape(shape), to=dtype_of(data))

    if sizes is not None:
        return empty()
    lower = op.ReduceMin(op.Abs(shape), keepdims=0)
    return op.If(op.Equal(lower, np.array(0, np.int64)), then_branch=empty, else_branch=lambda: op.Reshape(data, shape))


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
def split_sizes(op, input, split=None, *, axis=0, outputs: Outputs):
    """Parts with dynamic sizes are sliced one by one."""
    sizes = None if split is None else known(split)
    if split is None or sizes is not None:
        return op.Split(input, split=None if sizes is None else [int(n) for n in sizes], axis=axis, outputs=len(outputs))
    parts, start = [], op.constant(np.zeros(1, np.int64))
    for i in range(len(outputs)):
        end = op.Add(start, op.Slice(split, [i], [i + 1], [0]))
        parts.append(op.Slice(input, start, end, [axis]))
        start = end
    return tuple(parts) if len(parts) > 1 else parts[0]


@up("Pad", to=2)
def paddings(op, data, *, paddings, mode="constant", value=0.0):
    return op.Pad(data, pads=paddings, mode=mode, value=value)


@up("Pad", to=11)
def pad(op, data, *, pads, mode="constant", value=0.0):
    constant = None if mode != "constant" else np.array(value, dtype_of(data).numpy())
    return op.Pad(data, list(pads), constant, mode=mode)


@down("Pad", to=18)
def pad_wrap(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    if mode != "wrap":
        return op.Pad(data, pads, constant_value, axes, mode=mode)
    return padding.pad_by_gather(op, data, padding.pads_of_all_axes(op, data, pads, axes), mode)


@down("Pad", to=17)
def pad_axes(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    return op.Pad(data, padding.pads_of_all_axes(op, data, pads, axes), constant_value, mode=mode)


@down("Pad", to=10)
def pad_values(op, data, pads, constant_value=None, *, mode="constant"):
    """The value was a float32 attribute and the data a float; other cases and dynamic pads use Gather."""
    value = np.zeros(1) if constant_value is None else known(constant_value)
    float_ = dtype_of(data).name in ("FLOAT", "FLOAT16", "DOUBLE")
    sizes = known(pads)
    if float_ and sizes is not None:
        fixed = [int(n) for n in sizes]
        if mode != "constant":
            return op.Pad(data, pads=fixed, mode=mode)
        if value is not None:
            number = float(value.reshape(()))
            if not np.isfinite(number) or float(np.float32(number)) == number:
                return op.Pad(data, pads=fixed, value=number, mode=mode)
    return padding.pad_by_gather(op, data, pads, mode, constant_value)


@down("DepthToSpace", to=10)
def depth_to_space(op, input, *, blocksize, mode="DCR"):
    """The order column, row, depth, by Reshape and Transpose."""
    if mode == "DCR":
        return op.DepthToSpace(input, blocksize=blocksize)
    n, c, h, w = flattened.sizes(op, input)
    blocks = op.Reshape(input, op.dims([n, -1, blocksize, blocksize, h, w]))
    rows, columns = (flattened.times(op, size, blocksize) for size in (h, w))
    return op.Reshape(op.Transpose(blocks, perm=[0, 1, 4, 2, 5, 3]), op.dims([n, -1, rows, columns]))


@down("SpaceToDepth", to=27)
def space_to_depth(op, input, *, blocksize, mode="DCR"):
    """The order column, row, depth, by Reshape and Transpose."""
    if mode == "DCR":
        return op.SpaceToDepth(input, blocksize=blocksize)
    n, c, _, _ = flattened.sizes(op, input)
    if not isinstance(c, int):
        raise Unsupported("opset 28 added mode='CRD', and the number of channels must be known")
    h, w = (
        op.Div(v, np.array(blocksize, np.int64)) if isinstance(v, ir.Value) else v // blocksize
        for v in flattened.sizes(op, input)[2:]
    )
    blocks = op.Reshape(input, op.dims([n, c, h, blocksize, w, blocksize]))
    return op.Reshape(op.Transpose(blocks, perm=[0, 1, 3, 5, 2, 4]), op.dims([n, c * blocksize**2, h, w]))


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
def slice_attributes(op, data, starts, ends, axes=None, steps=None):
    """Slices with steps, or with dynamic starts or ends, use Gather."""
    bounds = [None if v is None else known(v) for v in (starts, ends, axes, steps)]
    count = starts.shape[0] if starts.shape is not None else None
    if axes is not None and bounds[2] is None or not isinstance(count, int):
        raise Unsupported("the axes must be known")
    axes = list(range(count)) if axes is None else [int(a) for a in bounds[2]]
    fixed = bounds[0] is not None and bounds[1] is not None and (steps is None or bounds[3] is not None)
    if not fixed:
        for i, axis in enumerate(axes):
            data = _slice_by_gather(op, data, axis % rank_of(data), *(_one_of(op, v, i) for v in (starts, ends, steps)))
        return data
    starts, ends = ([int(n) for n in v] for v in bounds[:2])
    steps = [1] * len(axes) if steps is None else [int(n) for n in bounds[3]]
    plain = [i for i in range(len(axes)) if steps[i] == 1]
    if plain:
        picked = ([each[i] for i in plain] for each in (starts, ends, axes))
        data = op.Slice(data, **dict(zip(("starts", "ends", "axes"), picked, strict=True)))
    for i in range(len(axes)):
        if i in plain:
            continue
        if data.shape is not None and isinstance(data.shape[axes[i]], int):
            order = np.arange(data.shape[axes[i]])[slice(*_bounds(starts[i], ends[i], steps[i], data.shape[axes[i]]))]
            data = op.Gather(data, order, axis=axes[i] % rank_of(data))
        else:
            ends_here = (np.array(v[i], np.int64) for v in (starts, ends, steps))
            data = _slice_by_gather(op, data, axes[i] % rank_of(data), *ends_here)
    return data


def _one_of(op, values, i):
    """Element `i` as a scalar, 1 if the input is missing."""
    if values is None:
        return op.constant(np.array(1, np.int64))
    return op.Gather(op.Cast(values, to=7), np.array(i, np.int64), axis=0)


def _slice_by_gather(op, data, axis, start, end, step):
    """A Gather of the slice's indices, with both ends clamped as in the standard."""
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    start, end, step = (op.constant(v) if isinstance(v, np.ndarray) else v for v in (start, end, step))
    size = op.Gather(op.Shape(data), np.array(axis, np.int64), axis=0)
    back = op.Cast(op.Less(step, zero), to=7)  # 1 if the step is negative

    def inside(position, lower):
        position = op.Add(position, op.Mul(op.Cast(op.Less(position, zero), to=7), size))
        position = _larger(op, position, lower)
        return op.Neg(_larger(op, op.Neg(position), op.Neg(op.Sub(size, back))))

    start, end = inside(start, zero), inside(end, op.Neg(back))
    # the distance over the step, rounded up
    length = op.Div(op.Add(op.Sub(end, start), op.Sub(step, op.Sub(one, op.Add(back, back)))), step)
    positions = flattened.map_range(op, _larger(op, length, zero))
    return op.Gather(data, op.Add(op.Mul(positions, step), start), axis=axis)


def _larger(op, a, b):
    """The maximum of two integers, before Max supported them."""
    less = op.Cast(op.Less(a, b), to=7)
    return op.Add(a, op.Mul(less, op.Sub(b, a)))


def _bounds(start, end, step, size):
    """The arguments of Python's slice: a backward slice that includes the first element ends at None."""
    if step > 0:
        return start, end, step
    return max(start, -size), None if end < -size else end, step


@down("Expand", to=7)
def expand(op, input, shape):
    """Expand as a Tile of the axes of size 1."""
    static_shape = known(shape)
    if static_shape is not None and input.shape is not None and all(isinstance(d, int) for d in input.shape):
        return tiled(op, input, [int(d) for d in static_shape])
    one = np.array(1, np.int64)
    target_rank = shape.shape[0] if shape.shape is not None else None
    current, target = op.Shape(input), shape
    if not isinstance(target_rank, int):
        more = op.Sub(op.Size(shape), np.array(rank_of(input), np.int64))
        current, target = _ones_before(op, more, current), _ones_before(op, op.Neg(more), target)
        input = op.Reshape(input, current)
    elif target_rank > rank_of(input):  # a Reshape would treat a size of 0 as unchanged
        input = op.Unsqueeze(input, axes=list(range(target_rank - rank_of(input))))
        current = op.Shape(input)
    elif target_rank < rank_of(input):
        target = op.Concat(np.ones(rank_of(input) - target_rank, np.int64), target, axis=0)
    return op.Tile(input, op.Add(op.Mul(op.Sub(target, one), op.Cast(op.Equal(current, one), to=7)), one))


def _ones_before(op, count, sizes):
    """Sizes with `count` ones prepended, none if it is negative."""
    ones = flattened.map_range(op, count, lambda step: op.Add(op.Sub(step, step), np.array(1, np.int64)))
    return op.Concat(ones, sizes, axis=0)


def tiled(op, x, shape):
    """A tensor broadcast to a static shape."""
    current = fixed_shape(x)
    rank = max(len(current), len(shape))
    padded, target = [1] * (rank - len(current)) + current, [1] * (rank - len(shape)) + list(shape)
    repeats = [w if h == 1 else 1 for h, w in zip(padded, target, strict=True)]
    if padded != current:
        x = op.Unsqueeze(x, axes=list(range(len(padded) - len(current))))
    return op.Tile(x, np.array(repeats, np.int64))


@down("ConstantOfShape", to=8)
def constant_of_shape(op, input, *, value=None):
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return op.Expand(op.constant(value.reshape(())), input)
