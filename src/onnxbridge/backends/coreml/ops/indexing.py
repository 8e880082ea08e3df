"""Gather, scatter, slice, pad and one-hot."""

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil._deployment_compatibility import AvailableTarget
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.block import curr_opset_version

from onnxbridge.backends.coreml.element_types import NARROW, cast, hub_dtype, is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import fixed, known, numbers, select, size, vector
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Int

END = np.iinfo(np.int32).max
MIN_TABLE_ELEMENTS = 2048


@rule("Slice")
def slice_(data, starts, ends, axes=None, steps=None):
    count = int(starts.shape[0])
    if any(v is not None and v.val is None for v in (axes, steps)):
        return _gathered_slice(data, starts, ends, axes, steps)
    axes = [a % data.rank for a in (range(count) if axes is None else known(axes))]
    steps = (1,) * count if steps is None else known(steps)
    if 0 in steps:
        raise Unsupported("a step of 0")
    first, last = known(starts), known(ends)
    if first is None or last is None:
        return _dynamic_slice(data, starts, ends, axes, steps)
    begin, end, stride = [0] * data.rank, [0] * data.rank, [1] * data.rank
    from_start, to_end = [True] * data.rank, [True] * data.rank
    for axis, low, high, step in zip(axes, first, last, steps, strict=True):
        stride[axis] = max(min(step, END), -END)
        if fixed(data, [axis]):
            n = int(data.shape[axis])
            low, high = (v + n if v < 0 else v for v in (low, high))
            if step > 0:
                low, high = min(max(low, 0), n), min(max(high, 0), n)
            else:
                low, high = min(max(low, 0), n - 1), min(max(high, -1), n - 1)
            if (high - low) * step <= 0:
                raise Unsupported("an empty result, which Core ML does not support")
            from_start[axis], to_end[axis] = False, high < 0
        else:
            if step < 0 and not (low in (-1,) or low >= END):
                raise Unsupported("a negative step that does not start at the end of a dynamic axis")
            from_start[axis] = (low == 0 and step > 0) or step < 0
            to_end[axis] = high >= END if step > 0 else high <= -END
        begin[axis], end[axis] = low, 0 if to_end[axis] else high
    return mb.slice_by_index(x=data, begin=begin, end=end, stride=stride, begin_mask=from_start, end_mask=to_end)


def _dynamic_slice(data, starts, ends, axes, steps):
    """A slice with dynamic bounds, which are clamped to the axis first. For negative steps the axis is reversed."""
    begin, end = [np.int32(0)] * data.rank, [size(data, a) for a in range(data.rank)]
    stride = [1] * data.rank
    back = [a for a, s in zip(axes, steps, strict=True) if s < 0]
    for i, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        n = size(data, axis)
        n = np.int32(n) if isinstance(n, int) else n
        low, high = (
            _wrap_negative(mb.slice_by_index(x=v, begin=[i], end=[i + 1], squeeze_mask=[True]), n) for v in (starts, ends)
        )
        if step < 0:
            last = mb.sub(x=n, y=np.int32(1))
            low, high = (mb.sub(x=last, y=mb.minimum(x=v, y=last)) for v in (low, high))
        begin[axis], end[axis] = (mb.maximum(x=mb.minimum(x=v, y=n), y=np.int32(0)) for v in (low, high))
        stride[axis] = min(abs(step), END)
    data = mb.reverse(x=data, axes=back) if back else data
    begin = [int(v) if isinstance(v, np.integer) else v for v in begin]
    return mb.slice_by_index(x=data, begin=vector(begin), end=vector(end), stride=stride)


def _at(vector, i):
    return mb.slice_by_index(x=vector, begin=[i], end=[i + 1], squeeze_mask=[True])


def _by_axis(values, axes, rank, default):
    """Scatter values for some axes, which may be dynamic, to one value per axis."""
    if axes is None:
        axes = np.arange(int(values.shape[0]), dtype=np.int32)
    return mb.scatter(
        data=default,
        indices=wrap_indices(axes, rank) if not isinstance(axes, np.ndarray) else axes,
        updates=values,
        axis=0,
        mode="update",
    )


def _gathered_slice(data, starts, ends, axes, steps):
    """A slice with dynamic axes or steps: each axis is gathered at its indices."""
    rank = data.rank
    shape = mb.shape(x=data)
    ones = np.ones(rank, np.int32)
    begin, end = _by_axis(starts, axes, rank, 0 * ones), _by_axis(ends, axes, rank, shape)
    step = mb.const(val=ones) if steps is None else _by_axis(steps, axes, rank, ones)
    down = mb.less(x=step, y=np.int32(0))
    begin, end = _wrap_negative(begin, shape), _wrap_negative(end, shape)
    last = mb.sub(x=shape, y=np.int32(1))
    begin = mb.maximum(x=mb.minimum(x=begin, y=select(down, last, shape)), y=np.int32(0))
    least = mb.select(cond=down, a=-ones, b=0 * ones)
    end = mb.maximum(x=mb.minimum(x=end, y=select(down, last, shape)), y=least)
    x = _bool_as_int32(data)
    for axis in range(rank):
        positions = mb.range_1d(start=_at(begin, axis), end=_at(end, axis), step=_at(step, axis))
        x = mb.gather(x=x, indices=positions, axis=axis)
    return cast(x, data.dtype)


def _wrap_negative(index, n):
    return select(cond=mb.less(x=index, y=np.int32(0)), a=mb.add(x=index, y=n), b=index)


def wrap_indices(indices, n):
    """Normalize negative indices; constant ones are checked."""
    if indices.val is not None and isinstance(n, int):
        array = np.asarray(indices.val, np.int32)
        if array.size and (array.min() < -n or array.max() >= n):
            raise Unsupported(f"an index is out of bounds [{-n}, {n - 1}]")
        return np.where(array < 0, array + n, array).astype(np.int32)
    return _wrap_negative(indices, np.int32(n) if isinstance(n, int) else n)


def _bool_as_int32(x):
    """Cast bools to int32: MIL's gather and scatter operators take numbers only."""
    return cast(x, types.int32) if x.dtype == types.bool else x


@rule("Gather")
def gather(data, indices, *, axis=0):
    constant = indices.val is not None and fixed(data, [axis])
    indices = wrap_indices(indices, int(data.shape[axis])) if constant else indices
    return cast(mb.gather(x=_narrow_table(_bool_as_int32(data)), indices=indices, axis=axis), data.dtype)


def _narrow_table(x):
    """A large constant of narrow integers, such as a quantized embedding, in its own dtype: it goes to the weight file, while
    coremltools writes int32 constants into the program, one Python object for each element."""
    dtype = hub_dtype(x)
    narrow = dtype in NARROW and curr_opset_version() >= AvailableTarget.iOS17
    if not narrow or x.val is None or np.size(x.val) < MIN_TABLE_ELEMENTS:
        return x
    bits, signed = NARROW[dtype]
    return np.asarray(x.val).astype(f"{'int' if signed else 'uint'}{max(bits, 8)}")


@rule("GatherElements")
def gather_elements(data, indices, *, axis=0):
    x = _bool_as_int32(data)
    others = [a for a in range(data.rank) if a != axis % data.rank]
    if any(data.shape[a] != indices.shape[a] for a in others):
        cut = [indices.shape[a] if a in others else data.shape[a] for a in range(data.rank)]
        if not all(isinstance(n, (int, np.integer)) for n in cut):
            raise Unsupported("indices and data of different dynamic sizes")
        x = mb.slice_by_index(x=x, begin=[0] * data.rank, end=[int(n) for n in cut])
    return cast(mb.gather_along_axis(x=x, indices=wrap_indices(indices, size(data, axis)), axis=axis), data.dtype)


@rule("GatherND")
def gather_nd(data, indices, *, batch_dims=0):
    """Negative indices are normalized here: coremltools' pass ignores batch_dims, and uses the sizes of the first axes."""
    limits = [size(data, batch_dims + a) for a in range(int(indices.shape[-1]))]
    return cast(
        mb.gather_nd(x=_bool_as_int32(data), indices=_wrap_coordinates(indices, limits), batch_dims=batch_dims), data.dtype
    )


def _wrap_coordinates(indices, limits):
    """Normalize negative coordinates."""
    if indices.val is not None and all(isinstance(n, int) for n in limits):
        array = np.asarray(indices.val, np.int32)
        return np.where(array < 0, array + np.array(limits, np.int32), array).astype(np.int32)
    return _wrap_negative(indices, vector(limits))


SCATTER_MODES = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@rule("ScatterElements")
def scatter_elements(data, indices, updates, *, axis=0, reduction="none"):
    axis %= data.rank
    indices = wrap_indices(indices, size(data, axis))
    x, new = _bool_as_int32(data), _bool_as_int32(updates)
    if all(data.shape[a] == indices.shape[a] for a in range(data.rank) if a != axis):
        y = mb.scatter_along_axis(data=x, indices=indices, updates=new, axis=axis, mode=SCATTER_MODES[reduction])
    else:  # indices smaller than the data: scatter by full coordinates
        shape = numbers(updates, "the indices")
        grid = np.indices(shape).astype(np.int32)
        positions = mb.stack(values=[indices if a == axis else grid[a] for a in range(data.rank)], axis=data.rank)
        y = mb.scatter_nd(data=x, indices=positions, updates=new, mode=SCATTER_MODES[reduction])
    return cast(y, data.dtype)


@rule("ScatterND")
def scatter_nd(data, indices, updates, *, reduction="none"):
    depth = int(indices.shape[-1])
    indices = _wrap_coordinates(indices, [size(data, a) for a in range(depth)])
    y = mb.scatter_nd(data=_bool_as_int32(data), indices=indices, updates=_bool_as_int32(updates), mode=SCATTER_MODES[reduction])
    return cast(y, data.dtype)


@rule("OneHot")
def one_hot(indices, depth: Int, values, *, axis=-1):
    """By comparison, so that an index outside of [-depth, depth) gives only off values."""
    axis = axis % (indices.rank + 1)
    n = like(indices, depth)
    indices = select(cond=mb.less(x=indices, y=like(indices, 0)), a=mb.add(x=indices, y=n), b=indices)
    positions = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(indices.rank + 1)])
    hot = mb.equal(x=mb.expand_dims(x=indices, axes=[axis]), y=like(indices, positions))
    off, on = (mb.slice_by_index(x=values, begin=[i], end=[i + 1], squeeze_mask=[True]) for i in (0, 1))
    return select(cond=hot, a=on, b=off)


@rule("NonZero")
def non_zero(X):
    return mb.transpose(x=mb.non_zero(x=X), perm=[1, 0])


@rule("Compress")
def compress(input, condition, *, axis=None):
    if axis is None:
        input, axis = mb.reshape(x=input, shape=[-1]), 0
    positions = mb.squeeze(x=mb.non_zero(x=condition), axes=[1])
    return cast(mb.gather(x=_bool_as_int32(input), indices=positions, axis=axis), input.dtype)


@rule("ReverseSequence")
def reverse_sequence(input, sequence_lens, *, batch_axis=1, time_axis=0):
    return mb.reverse_sequence(x=input, lengths=sequence_lens, seq_axis=time_axis, batch_axis=batch_axis)


PAD_MODES = {"reflect": "reflect", "edge": "replicate"}


@rule("Pad")
def pad(data, pads, constant_value=None, axes=None, *, mode="constant"):
    if axes is not None and axes.val is None:
        count = int(axes.shape[0])
        zeros = np.zeros(data.rank, np.int32)
        halves = (mb.slice_by_index(x=pads, begin=[i], end=[i + count]) for i in (0, count))
        pads, axes = mb.concat(values=[_by_axis(h, axes, data.rank, zeros) for h in halves], axis=0), None
    axes = [a % data.rank for a in (range(data.rank) if axes is None else known(axes))]
    amounts = known(pads)
    is_native = is_float(data) and amounts is not None and min(amounts, default=0) >= 0
    if constant_value is not None and constant_value.rank:
        constant_value = mb.squeeze(x=constant_value)
    value = None if constant_value is None else constant_value.val
    if is_native and mode == "constant" and (constant_value is None or value is not None):
        return mb.pad(
            x=data,
            pad=_mil_pads(amounts, axes, data.rank),
            mode=mode,
            constant_val=like(data, 0 if value is None else value).reshape(()),
        )
    if is_native and mode in PAD_MODES and data.rank >= 3 and all(a >= data.rank - 2 for a in axes) and fixed(data, axes):
        count = len(axes)
        if all(max(amounts[i], amounts[i + count]) < data.shape[a] for i, a in enumerate(axes)):
            return mb.pad(x=data, pad=_mil_pads(amounts, axes, data.rank)[-4:], mode=PAD_MODES[mode])
    x = _bool_as_int32(data)
    for i, axis in enumerate(axes):
        before, after = (_amount(pads, amounts, j) for j in (i, i + len(axes)))
        if not (isinstance(before, int) and isinstance(after, int) and before == after == 0):
            x = _padded(x, axis, before, after, mode, constant_value)
    return cast(x, data.dtype)


def _mil_pads(amounts, axes, rank):
    """Padding in MIL's order: before and after for every axis."""
    spread = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        spread[2 * axis], spread[2 * axis + 1] = amounts[i], amounts[i + len(axes)]
    return spread


def _amount(pads, amounts, i):
    return amounts[i] if amounts is not None else mb.slice_by_index(x=pads, begin=[i], end=[i + 1], squeeze_mask=[True])


def _scalar(n):
    return np.int32(n) if isinstance(n, int) else n


def _padded(x, axis, before, after, mode, constant_value):
    """Pad or crop one axis by a gather, for any dtype and any amount."""
    n = _scalar(size(x, axis))
    positions = mb.range_1d(start=mb.sub(x=np.int32(0), y=_scalar(before)), end=mb.add(x=n, y=_scalar(after)), step=np.int32(1))
    last = mb.sub(x=n, y=np.int32(1))
    if mode == "wrap":
        source = mb.mod(x=positions, y=n)
    elif mode == "reflect":
        period = mb.maximum(x=mb.mul(x=last, y=np.int32(2)), y=np.int32(1))
        folded = mb.mod(x=positions, y=period)
        source = mb.minimum(x=folded, y=mb.sub(x=period, y=folded))
        source = mb.minimum(x=source, y=last)
    else:
        source = mb.maximum(x=mb.minimum(x=positions, y=last), y=np.int32(0))
    y = mb.gather(x=x, indices=source, axis=axis)
    if mode != "constant":
        return y
    shape = [-1 if a == axis else 1 for a in range(x.rank)]
    wrap_indices = mb.reshape(x=mb.cast(x=mb.equal(x=source, y=positions), dtype="int32"), shape=shape)
    value = like(x, 0) if constant_value is None else cast(constant_value, x.dtype)
    return select(cond=mb.cast(x=wrap_indices, dtype="bool"), a=y, b=value)
