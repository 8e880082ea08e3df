"""Reshaping, concatenation, slicing, tiling, padding and casting."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import cast, rank, static_shape

LAST, FIRST = np.iinfo(np.int64).max, np.iinfo(np.int64).min


def sizes(op, x):
    """The size of each dimension, an int if static."""
    return [op.size(x, i) for i in range(rank(x))]


def product(op, items):
    """The product of sizes."""
    total = 1
    for item in items:
        known = isinstance(total, int) and isinstance(item, int)
        total = total * item if known else item if isinstance(total, int) and total == 1 else op.Mul(total, item)
    return total


def divide(op, a, b):
    return a // b if isinstance(a, int) and isinstance(b, int) else op.Div(a, b)


def reshaped_sizes(op, dims, codes):
    """The new sizes from Reshape's codes and the old sizes.

    0 keeps a dimension, -1 is what is left, -2 keeps all that follow, -3 joins two, -4 splits one into the next two.
    """
    new, at, codes = [], 0, list(codes)
    while codes:
        code = codes.pop(0)
        if code > 0 or code == -1:
            new.append(code)
            at += 1
        elif code == 0:
            new.append(dims[at])
            at += 1
        elif code == -2:
            new += dims[at:]
            at = len(dims)
        elif code == -3:
            new.append(product(op, dims[at : at + 2]))
            at += 2
        elif code == -4:
            a, b = codes.pop(0), codes.pop(0)
            if a == -1 and b == -1:
                raise Unsupported("both parts of a split dimension are -1")
            new += [divide(op, dims[at], b) if a == -1 else a, divide(op, dims[at], a) if b == -1 else b]
            at += 1
        else:
            raise Unsupported(f"unknown shape code {code}")
    return new


def moved_axes(count, source, destination):
    """The order of `count` axes in which those of `source` are at `destination`, as numpy.moveaxis has it."""
    source, destination = ([d % count for d in axes] for axes in (source, destination))
    order = [i for i in range(count) if i not in source]
    for to, start in sorted(zip(destination, source, strict=True)):
        order.insert(to, start)
    return order


def transposed_to(op, x, order):
    return x if order == list(range(len(order))) else op.Transpose(x, perm=order)


@rule("Reshape", "reshape")
def reshape(op, data, *, shape=(), reverse=False, target_shape=(), keep_highest=False):
    if not shape:  # the attribute of old versions, where 0 is the inferred size
        codes = [-1 if d == 0 else d for d in as_tuple(target_shape)]
        if keep_highest and codes:
            codes[0] = 0
        return op.reshape(data, reshaped_sizes(op, sizes(op, data), codes))
    dims = sizes(op, data)
    if not reverse:
        return op.reshape(data, reshaped_sizes(op, dims, shape))
    return op.reshape(data, reshaped_sizes(op, dims[::-1], tuple(shape)[::-1])[::-1])


@rule("reshape_like", "_npx_reshape_like")
def reshape_like(op, lhs, rhs, *, lhs_begin=None, lhs_end=None, rhs_begin=None, rhs_end=None):
    if lhs_begin is lhs_end is rhs_begin is rhs_end is None:
        return op.Reshape(lhs, op.Shape(rhs))

    def bounds(begin, end, count):
        begin, end = begin or 0, count if end is None else end
        return begin + count * (begin < 0), end + count * (end < 0)

    a, b = bounds(lhs_begin, lhs_end, rank(lhs))
    c, d = bounds(rhs_begin, rhs_end, rank(rhs))
    left = sizes(op, lhs)
    return op.reshape(lhs, left[:a] + sizes(op, rhs)[c:d] + left[b:])


@rule("Flatten", "flatten", "_npx_batch_flatten")
def flatten(op, data):
    return op.Flatten(data, axis=1)


@rule("transpose")
def transpose(op, data, *, axes=()):
    order = [a % rank(data) for a in as_tuple(axes)] or list(range(rank(data)))[::-1]
    return op.Transpose(data, perm=order)


@rule("SwapAxis", "swapaxes")
def swap_axis(op, data, *, dim1=0, dim2=0):
    order = list(range(rank(data)))
    order[dim1], order[dim2] = order[dim2], order[dim1]
    return op.Transpose(data, perm=order)


@rule("expand_dims")
def expand_dims(op, data, *, axis):
    return op.Unsqueeze(data, [axis])


@rule("squeeze")
def squeeze(op, data, *, axis=None, np_shape=False):
    axes = [a % rank(data) for a in as_tuple(axis)] or [i for i, d in enumerate(data.shape) if d == 1]
    if axis is None and not all(isinstance(d, int) for d in data.shape):
        raise Unsupported("squeeze of dynamic dimensions without axis is not supported", hint="pass axis, or static shapes")
    if len(axes) == rank(data) and not np_shape:  # without np-shape there are no scalars: the last dimension remains
        axes = axes[1:]
    return op.Squeeze(data, axes) if axes else op.Identity(data)


@rule("Concat", "concat")
def concat(op, *data, dim=1):
    return op.Concat(*data, axis=dim)


@rule("_rnn_param_concat")
def rnn_param_concat(op, *data, dim=1):
    known = [constant_array(d) for d in data]
    if any(k is None for k in known):
        return op.Concat(*data, axis=dim)
    return op.constant(np.concatenate(known, axis=dim))


@rule("stack")
def stack(op, *data, axis=0):
    return op.Concat(*[op.Unsqueeze(d, [axis]) for d in data], axis=axis)


@rule("SliceChannel", "split")
def slice_channel(op, data, *, num_outputs, axis=1, squeeze_axis=False):
    return _pieces(op, data, num_outputs, None, axis, squeeze_axis)


@rule("_split_v2")
def split_v2(op, data, *, indices=(), axis=1, squeeze_axis=False, sections=0):
    """Equal parts, the first of which have one element more if the size is no multiple, or parts that begin at indices."""
    if sections:
        return _pieces(op, data, sections, _section_sizes(op, op.size(data, axis), sections), axis, squeeze_axis)
    (size,) = static_shape(data, [axis])
    ends = [min(i, size) for i in (*as_tuple(indices), size)]
    lengths = [b - a for a, b in zip(ends, ends[1:], strict=False)]
    return _pieces(op, data, len(lengths), lengths, axis, squeeze_axis)


def _section_sizes(op, size, sections):
    """The sizes of numpy.array_split; None if Split's own equal parts are the same."""
    if not isinstance(size, int):
        longer = op.Less(np.arange(sections), op.Mod(size, sections))
        return op.Add(op.Div(size, sections), op.Cast(longer, to=np.int64))
    if size and not size % sections:
        return None
    return [size // sections + (i < size % sections) for i in range(sections)]


def _pieces(op, data, count, lengths, axis, squeeze_axis):
    if count == 1:
        parts = (data,)
    elif lengths is None:
        parts = op.Split(data, axis=axis, num_outputs=count, outputs=count)
    else:
        parts = op.Split(data, lengths, axis=axis, outputs=count)
    return tuple(op.Squeeze(p, [axis]) if squeeze_axis else op.Identity(p) if count == 1 else p for p in parts)


@rule("slice", "crop")
def slice_(op, data, *, begin, end, step=()):
    begin, end, step = as_tuple(begin), as_tuple(end), as_tuple(step)
    if not begin:
        return op.Identity(data)
    steps = [(step[i] if i < len(step) else None) or 1 for i in range(len(begin))]
    starts = [(0 if s > 0 else LAST) if b is None else b for b, s in zip(begin, steps, strict=True)]
    ends = [(LAST if s > 0 else FIRST) if e is None else e for e, s in zip(end, steps, strict=True)]
    return op.Slice(data, starts, ends, list(range(len(begin))), steps)


@rule("slice_axis")
def slice_axis(op, data, *, axis, begin, end=None):
    return op.Slice(data, [begin], [LAST if end is None else end], [axis], [1])


@rule("slice_like")
def slice_like(op, data, shape_like, *, axes=()):
    chosen = [a % rank(data) for a in as_tuple(axes)] or list(range(rank(data)))
    ends = op.dims([op.size(shape_like, a) for a in chosen])
    return op.Slice(data, [0] * len(chosen), ends, chosen)


@rule("Crop")
def crop(op, *data, offset=(0, 0), h_w=(0, 0), center_crop=False):
    """Crop the last two dimensions to the size of the second input, or to `h_w`."""
    height, width = static_shape(data[1], [2, 3]) if len(data) == 2 else h_w
    tall, wide = static_shape(data[0], [2, 3])
    top, left = ((tall - height) // 2, (wide - width) // 2) if center_crop else offset
    return op.Slice(data[0], [top, left], [top + height, left + width], [2, 3])


@rule("reverse", "flip")
def reverse(op, data, *, axis):
    axes = list(as_tuple(axis))
    return op.Slice(data, [LAST] * len(axes), [FIRST] * len(axes), axes, [-1] * len(axes))


@rule("tile")
def tile(op, data, *, reps):
    reps, count = list(as_tuple(reps)), rank(data)
    if len(reps) > count:
        data = op.Unsqueeze(data, list(range(len(reps) - count)))
    return op.Tile(data, [1] * (count - len(reps)) + reps) if rank(data) else op.Identity(data)


@rule("repeat")
def repeat(op, data, *, repeats, axis=None):
    if axis is None:
        data, axis = op.Reshape(data, [-1]), 0
    axis %= rank(data)
    if not repeats:
        return op.Slice(data, [0], [0], [axis])
    wide = op.Unsqueeze(data, [axis + 1])
    wide = op.Expand(wide, [1] * (axis + 1) + [repeats] + [1] * (rank(data) - axis - 1))
    dims = sizes(op, data)
    return op.reshape(wide, dims[:axis] + [product(op, [dims[axis], repeats])] + dims[axis + 1 :])


@rule("broadcast_to")
def broadcast_to(op, data, *, shape=()):
    """A size of 0 is unchanged."""
    return op.Expand(data, [d or 1 for d in as_tuple(shape)])


@rule("broadcast_axis", "broadcast_axes")
def broadcast_axis(op, data, *, axis=(), size=()):
    target = dict(zip([a % rank(data) for a in as_tuple(axis)], as_tuple(size), strict=True))
    return op.Expand(data, [target.get(i, 1) for i in range(rank(data))])


@rule("broadcast_like")
def broadcast_like(op, lhs, rhs, *, lhs_axes=None, rhs_axes=None):
    if lhs_axes is None:
        return op.Expand(lhs, op.Shape(rhs))
    target = [1] * rank(lhs)
    for a, b in zip(as_tuple(lhs_axes), as_tuple(rhs_axes), strict=True):
        target[a] = op.size(rhs, b)
    return op.Expand(lhs, op.dims(target))


@rule("shape_array", "_npx_shape_array")
def shape_array(op, data):
    return op.Shape(data)


@rule("size_array")
def size_array(op, data):
    return op.Unsqueeze(op.Size(data), [0])


@rule("depth_to_space")
def depth_to_space(op, data, *, block_size):
    return op.DepthToSpace(data, blocksize=block_size)


@rule("space_to_depth")
def space_to_depth(op, data, *, block_size):
    return op.SpaceToDepth(data, blocksize=block_size)


@rule("Cast", "cast")
def cast_(op, data, *, dtype):
    return op.Cast(data, to=named(dtype))


@rule("amp_cast")
def amp_cast(op, data, *, dtype):
    """Only floating-point data is converted."""
    if not data.dtype.is_floating_point():
        return op.Identity(data)
    if not named(dtype).is_floating_point():
        raise Unsupported(f"dtype={dtype!r} is not supported", hint="amp_cast converts between floats")
    return op.Cast(data, to=named(dtype))


@rule("amp_multicast")
def amp_multicast(op, *data, num_outputs, cast_narrow=False):
    order = sorted({d.dtype for d in data}, key=lambda t: t.bitwidth)
    target = order[0] if cast_narrow else order[-1]
    return tuple(op.Identity(d) if d.dtype == target else cast(op, d, target) for d in data)


@rule("cast_storage")
def cast_storage(op, data, *, stype):
    """The storage type does not affect the values."""
    return op.Identity(data)


@rule("Pad", "pad")
def pad(op, data, *, mode, pad_width, constant_value=0.0):
    widths = list(pad_width[0::2]) + list(pad_width[1::2])
    if mode == "constant":
        integer = data.dtype.is_integer()
        return op.Pad(data, widths, op.constant(int(constant_value) if integer else constant_value, dtype=data.dtype))
    return op.Pad(data, widths, mode=mode)


@rule("diag")
def diag(op, data, *, k=0, axis1=0, axis2=1):
    if rank(data) == 1:
        size = static_shape(data)[0] + abs(k)
        wide = op.Pad(data, [max(k, 0), max(-k, 0)])
        mask = op.constant(np.eye(size, k=k, dtype=bool))
        return op.Where(mask, wide if k >= 0 else op.Unsqueeze(op.Pad(data, [-k, 0]), [1]), 0)
    axis1, axis2 = axis1 % rank(data), axis2 % rank(data)
    rest = [i for i in range(rank(data)) if i not in (axis1, axis2)]
    rows, columns = static_shape(data, [axis1, axis2])
    if min(axis1, axis2) < rank(data) - 2 or axis1 > axis2:
        data = op.Transpose(data, perm=[*rest, axis1, axis2])
    start, count = max(-k, 0), min(rows + min(k, 0), columns - max(k, 0))
    chosen = np.array([(start + i) * columns + start + i + k for i in range(max(count, 0))], np.int64)
    flat = op.reshape(data, [*[op.size(data, i) for i in range(len(rest))], rows * columns])
    return op.Gather(flat, chosen, axis=len(rest))
