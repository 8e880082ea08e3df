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


@down("Pad", to=18)
def pad_wrap(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    if mode != "wrap":
        return op.Pad(data, pads, constant_value, axes, mode=mode)
    found, which = known(pads), None if axes is None else known(axes)
    if found is None or (axes is not None and which is None):
        raise Unsupported("opset 19 added mode='wrap'", "make the paddings constants")
    return _pad_by_gather(op, data, found, range(rank_of(data)) if which is None else which, mode)


def _pad_by_gather(op, data, pads, axes, mode):
    """Each axis gathered from itself, in the order in which padding repeats its elements."""
    shape, axes = fixed_shape(data), [int(a) for a in axes]
    for i, axis in enumerate(axes):
        begin, end = int(pads[i]), int(pads[i + len(axes)])
        order = np.pad(np.arange(shape[axis]), (max(begin, 0), max(end, 0)), mode=mode)
        order = order[max(-begin, 0) : len(order) - max(-end, 0)]
        if (begin, end) != (0, 0):
            data = op.Gather(data, order, axis=axis % len(shape))
    return op.Identity(data)


@down("Pad", to=17)
def pad_axes(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    if axes is None:
        return op.Pad(data, pads, constant_value, mode=mode)
    rank, given = rank_of(data), known(axes)
    if given is None:
        axes = op.Cast(axes, to=7)
        axes = op.Add(axes, op.Mul(op.Cast(op.Less(axes, np.array(0, np.int64)), to=7), np.array(rank, np.int64)))
        both = op.Concat(axes, op.Add(axes, np.array(rank, np.int64)), axis=0)
        whole = op.ScatterElements(np.zeros(2 * rank, np.int64), both, pads, axis=0)
        return op.Pad(data, whole, constant_value, mode=mode)
    axes = [int(a) % rank for a in given]
    # each padding is moved to its axis: a gather from the paddings with a zero behind them
    where = [len(axes) * 2] * (2 * rank)
    for i, axis in enumerate(axes):
        where[axis], where[axis + rank] = i, i + len(axes)
    if len(axes) != len(set(axes)):
        raise Unsupported("an axis is padded twice")
    whole = op.Gather(op.Concat(pads, np.zeros(1, np.int64), axis=0), np.array(where, np.int64), axis=0)
    return op.Pad(data, whole, constant_value, mode=mode)


@down("Pad", to=10)
def pad_values(op, data, pads: Ints, constant_value=None, *, mode="constant"):
    """The value was a float32 and so was, or might be, the data; what is not fits between other pieces instead."""
    value = np.zeros(1) if constant_value is None else known(constant_value)
    float_ = dtype_of(data).name in ("FLOAT", "FLOAT16", "DOUBLE")
    if float_ and mode != "constant":
        return op.Pad(data, pads=pads, mode=mode)
    if float_ and value is not None:
        number = float(value.reshape(()))
        if not np.isfinite(number) or float(np.float32(number)) == number:
            return op.Pad(data, pads=pads, value=number, mode=mode)
    if mode != "constant":
        return _pad_by_gather(op, data, pads, range(rank_of(data)), mode)
    if constant_value is None:
        constant_value = op.constant(0, dtype=dtype_of(data))
    return _pad_by_pieces(op, data, pads, constant_value)


def _pad_by_pieces(op, data, pads, value):
    shape = fixed_shape(data)
    for axis, (begin, end) in enumerate(zip(pads[: len(shape)], pads[len(shape) :], strict=True)):
        if begin < 0 or end < 0:
            start, stop = max(-begin, 0), shape[axis] - max(-end, 0)
            data, shape[axis] = op.Slice(data, [start], [stop], [axis]), stop - start
        pieces = [data]
        for size, place in ((begin, 0), (end, len(pieces))):
            if size > 0:
                slab = np.array([*shape[:axis], size, *shape[axis + 1 :]], np.int64)
                filled = op.Expand(op.Reshape(value, [1] * len(shape)), slab)
                pieces.insert(0 if place == 0 else len(pieces), filled)
        if len(pieces) > 1:
            data = op.Concat(*pieces, axis=axis)
        shape[axis] += max(begin, 0) + max(end, 0)
    return op.Identity(data)


@down("DepthToSpace", to=10)
def depth_to_space(op, input, *, blocksize, mode="DCR"):
    """The order column, row, depth, by Reshape and Transpose."""
    if mode == "DCR":
        return op.DepthToSpace(input, blocksize=blocksize)
    n, c, h, w = fixed_shape(input)
    split = op.Reshape(input, np.array([n, c // blocksize**2, blocksize, blocksize, h, w], np.int64))
    return op.Reshape(
        op.Transpose(split, perm=[0, 1, 4, 2, 5, 3]), np.array([n, c // blocksize**2, h * blocksize, w * blocksize], np.int64)
    )


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
    """What goes by steps is gathered instead."""
    axes = list(range(len(starts)) if axes is None else axes)
    plain = [i for i in range(len(axes)) if steps is None or steps[i] == 1]
    if plain:
        picked = ([each[i] for i in plain] for each in (starts, ends, axes))
        data = op.Slice(data, **dict(zip(("starts", "ends", "axes"), picked, strict=True)))
    for i in range(len(axes)):
        if i not in plain:
            order = np.arange(fixed_shape(data)[axes[i]])[slice(*_bounds(starts[i], ends[i], steps[i]))]
            data = op.Gather(data, order, axis=axes[i] % rank_of(data))
    return data


def _bounds(start, end, step):
    """Backwards a slice ends before the first element, which Python writes as None."""
    return start, None if step < 0 and end < -(1 << 31) else end, step


@down("Expand", to=7)
def expand(op, input, shape):
    """Before Expand there is only Tile; what it repeats is the size that is wanted where there was 1."""
    wanted = known(shape)
    if wanted is not None and input.shape is not None and all(isinstance(d, int) for d in input.shape):
        return tiled(op, input, [int(d) for d in wanted])
    if shape.shape is None or not isinstance(shape.shape[0], int):
        raise Unsupported("the number of sizes to expand to must be known")
    rank = max(rank_of(input), shape.shape[0])
    one = np.array(1, np.int64)
    have, want = op.Shape(input), shape
    if rank_of(input) < rank:
        have = op.Concat(np.ones(rank - rank_of(input), np.int64), have, axis=0)
        input = op.Reshape(input, have)
    if shape.shape[0] < rank:
        want = op.Concat(np.ones(rank - shape.shape[0], np.int64), want, axis=0)
    return op.Tile(input, op.Add(op.Mul(op.Sub(want, one), op.Cast(op.Equal(have, one), to=7)), one))


def counted(op, count, each=None):
    """0, 1, 2 ... up to a number that is only known when the model runs, or what `each` makes of these."""
    nothing = np.array(0, np.int64)  # a loop had to carry something along
    each = each or op.Identity
    _, gathered = op.Loop(count, True, nothing, body=lambda step, going, held: [going, held, each(step)], outputs=2)
    return op.Reshape(gathered, [-1])  # the standard's evaluator stacks scalars as a column


def tiled(op, x, shape):
    """A tensor broadcast to sizes that are all known."""
    have = fixed_shape(x)
    rank = max(len(have), len(shape))
    padded, want = [1] * (rank - len(have)) + have, [1] * (rank - len(shape)) + list(shape)
    repeats = [w if h == 1 else 1 for h, w in zip(padded, want, strict=True)]
    if padded != have:
        x = op.Reshape(x, np.array(padded, np.int64))
    return op.Tile(x, np.array(repeats, np.int64))


@down("ConstantOfShape", to=8)
def constant_of_shape(op, input, *, value=None):
    value = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return op.Expand(op.constant(value.reshape(())), input)
