"""Shapes: padding, tiling and splitting by gathers and slices, and blocks moved between space and depth."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.decompositions.standard.dynamic_axis import element, laid, product, scalar, sizes_of
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.hub.opset.known_values import known
from onnxbridge.rules import Outputs


@expand("Size")
def size(op, data):
    return op.ReduceProd(op.Shape(data), keepdims=0)


@expand("Flatten")
def flatten(op, input, *, axis=1):
    sizes = sizes_of(op, input)
    axis = axis % rank(input) if axis < 0 else axis
    return op.reshape(input, [product(op, sizes[:axis]), product(op, sizes[axis:])])


@expand("Tile")
def tile(op, input, repeats):
    """Each axis behind a new one of as many turns, and the two joined."""
    have = sizes_of(op, input)
    times = [element(op, repeats, d) for d in range(rank(input))]
    spread = op.reshape(input, [n for size in have for n in (1, size)])
    wide = op.Expand(spread, op.dims([n for turns, size in zip(times, have, strict=True) for n in (turns, size)]))
    whole = [op.Mul(turns, scalar(op, size)) for turns, size in zip(times, have, strict=True)]
    return op.Reshape(wide, op.dims(whole), allowzero=1)


@expand("DepthToSpace")
def depth_to_space(op, input, *, blocksize, mode="DCR"):
    n, c, h, w = sizes_of(op, input)
    b, depth = blocksize, c // blocksize**2 if isinstance(c, int) else op.Div(c, np.int64(blocksize**2))
    parts, order = ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2]) if mode == "DCR" else ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3])
    return op.reshape(op.Transpose(op.reshape(input, parts), perm=order), [n, depth, *_times(op, (h, w), b)])


@expand("SpaceToDepth")
def space_to_depth(op, input, *, blocksize):
    n, c, h, w = sizes_of(op, input)
    b = blocksize
    h, w = (s // b if isinstance(s, int) else op.Div(s, np.int64(b)) for s in (h, w))
    moved = op.Transpose(op.reshape(input, [n, c, h, b, w, b]), perm=[0, 3, 5, 1, 2, 4])
    return op.reshape(moved, [n, *_times(op, (c,), b * b), h, w])


def _times(op, sizes, factor):
    return [s * factor if isinstance(s, int) else op.Mul(s, np.int64(factor)) for s in sizes]


@expand("Split")
def split(op, input, split=None, *, axis=0, num_outputs=None, outputs: Outputs):
    """Slices one behind the other; without sizes all are as long as the first, but the last may be shorter."""
    length, count = op.size(input, axis), len(outputs)
    if split is not None:
        ends = op.CumSum(split, np.int64(0))
        bounds = [op.constant(np.zeros(1, np.int64)), *(op.Slice(ends, [i], [i + 1], [0]) for i in range(count))]
        return tuple(op.Slice(input, bounds[i], bounds[i + 1], [axis]) for i in range(count))
    each = op.Div(op.Add(scalar(op, length), np.int64(count - 1)), np.int64(count))
    bounds = [op.Reshape(op.Mul(each, np.int64(i)), [1]) for i in range(count + 1)]
    return tuple(op.Slice(input, bounds[i], bounds[i + 1], [axis]) for i in range(count))


@expand("Pad")
def pad(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    """Each axis gathered from the places that its new elements come from; a negative pad leaves elements out."""
    count = rank(data)
    if axes is not None:
        axis = op.Mod(cast(op, axes, pads.dtype), op.constant(count, dtype=pads.dtype))
        both = op.Concat(axis, op.Add(axis, op.constant(count, dtype=pads.dtype)), axis=0)
        pads = op.ScatterElements(op.constant(np.zeros(2 * count, np.int64)), both, pads, axis=0)
    value = op.constant(0, dtype=data.dtype) if constant_value is None else op.Reshape(constant_value, np.zeros(0, np.int64))
    fixed = known(pads)
    for axis in range(count):
        ends = [element(op, pads, j) for j in (axis, axis + count)] if fixed is None else fixed[[axis, axis + count]]
        if fixed is not None and not ends.any():
            continue
        before, behind = (e if fixed is None else op.constant(np.int64(e)) for e in ends)
        length = scalar(op, op.size(data, axis))
        place = op.Range(op.Mul(before, np.int64(-1)), op.Add(length, behind), np.int64(1))
        last = op.Sub(length, np.int64(1))
        inner = op.Max(op.Min(_source(op, place, length, last, mode), last), np.int64(0))
        data = op.Gather(data, inner, axis=axis)
        if mode == "constant":
            outside = op.Or(op.Less(place, np.int64(0)), op.Greater(place, last))
            data = op.Where(laid(op, outside, axis, count), value, data)
    return data if data.producer() is not None else op.Identity(data)


def _source(op, place, length, last, mode):
    """Where a new element comes from."""
    if mode in ("constant", "edge"):
        return place
    if mode == "wrap":
        return op.Mod(place, length)
    if mode != "reflect":
        raise Unsupported(f"mode {mode!r}")
    period = op.Max(op.Mul(last, np.int64(2)), np.int64(1))
    return op.Sub(last, op.Abs(op.Sub(op.Mod(place, period), last)))
