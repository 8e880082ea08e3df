"""Padding, tiling, splitting and space-to-depth in Gather, Slice, Expand and Reshape."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.dynamic_axis import broadcast_along, element, product, scalar, sizes_of
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.hub.opset.known_values import known
from onnxbridge.rules import Outputs


@decompose("Size")
def size(op, data):
    return op.ReduceProd(op.Shape(data), keepdims=0)


@decompose("Flatten")
def flatten(op, input, *, axis=1):
    sizes = sizes_of(op, input)
    axis = axis % rank(input) if axis < 0 else axis
    return op.reshape(input, [product(op, sizes[:axis]), product(op, sizes[axis:])])


@decompose("Tile")
def tile(op, input, repeats):
    """Inserts an axis of size repeats[d] before each axis d, expands, and merges the two."""
    sizes = sizes_of(op, input)
    axis_repeats = [element(op, repeats, d) for d in range(rank(input))]
    unsqueezed = op.reshape(input, [n for size in sizes for n in (1, size)])
    expanded = op.Expand(
        unsqueezed, op.dims([n for repeat, size in zip(axis_repeats, sizes, strict=True) for n in (repeat, size)])
    )
    new_sizes = [op.Mul(repeat, scalar(op, size)) for repeat, size in zip(axis_repeats, sizes, strict=True)]
    return op.Reshape(expanded, op.dims(new_sizes), allowzero=1)


@decompose("DepthToSpace")
def depth_to_space(op, input, *, blocksize, mode="DCR"):
    n, c, h, w = sizes_of(op, input)
    b, depth = blocksize, c // blocksize**2 if isinstance(c, int) else op.Div(c, np.int64(blocksize**2))
    parts, order = ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2]) if mode == "DCR" else ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3])
    return op.reshape(op.Transpose(op.reshape(input, parts), perm=order), [n, depth, *_scale_sizes(op, (h, w), b)])


@decompose("SpaceToDepth")
def space_to_depth(op, input, *, blocksize):
    n, c, h, w = sizes_of(op, input)
    b = blocksize
    h, w = (s // b if isinstance(s, int) else op.Div(s, np.int64(b)) for s in (h, w))
    moved = op.Transpose(op.reshape(input, [n, c, h, b, w, b]), perm=[0, 3, 5, 1, 2, 4])
    return op.reshape(moved, [n, *_scale_sizes(op, (c,), b * b), h, w])


def _scale_sizes(op, sizes, factor):
    return [s * factor if isinstance(s, int) else op.Mul(s, np.int64(factor)) for s in sizes]


@decompose("Split")
def split(op, input, split=None, *, axis=0, num_outputs=None, outputs: Outputs):
    """Consecutive slices; without sizes all have the same length, except the last, which may be shorter."""
    length, count = op.size(input, axis), len(outputs)
    if split is not None:
        ends = op.CumSum(split, np.int64(0))
        bounds = [op.constant(np.zeros(1, np.int64)), *(op.Slice(ends, [i], [i + 1], [0]) for i in range(count))]
        return tuple(op.Slice(input, bounds[i], bounds[i + 1], [axis]) for i in range(count))
    part_length = op.Div(op.Add(scalar(op, length), np.int64(count - 1)), np.int64(count))
    bounds = [op.Reshape(op.Mul(part_length, np.int64(i)), [1]) for i in range(count + 1)]
    return tuple(op.Slice(input, bounds[i], bounds[i + 1], [axis]) for i in range(count))


@decompose("Pad")
def pad(op, data, pads, constant_value=None, axes=None, *, mode="constant"):
    """Gathers each axis by the source index of each output element; negative pads remove elements."""
    count = rank(data)
    if axes is not None:
        axis = op.Mod(cast(op, axes, pads.dtype), op.constant(count, dtype=pads.dtype))
        both = op.Concat(axis, op.Add(axis, op.constant(count, dtype=pads.dtype)), axis=0)
        pads = op.ScatterElements(op.constant(np.zeros(2 * count, np.int64)), both, pads, axis=0)
    value = op.constant(0, dtype=data.dtype) if constant_value is None else op.Reshape(constant_value, np.zeros(0, np.int64))
    constant_pads = known(pads)
    for axis in range(count):
        axis_pads = (
            [element(op, pads, j) for j in (axis, axis + count)] if constant_pads is None else constant_pads[[axis, axis + count]]
        )
        if constant_pads is not None and not axis_pads.any():
            continue
        before, after = (e if constant_pads is None else op.constant(np.int64(e)) for e in axis_pads)
        length = scalar(op, op.size(data, axis))
        indices = op.Range(op.Mul(before, np.int64(-1)), op.Add(length, after), np.int64(1))
        last = op.Sub(length, np.int64(1))
        source = op.Max(op.Min(_source(op, indices, length, last, mode), last), np.int64(0))
        data = op.Gather(data, source, axis=axis)
        if mode == "constant":
            outside = op.Or(op.Less(indices, np.int64(0)), op.Greater(indices, last))
            data = op.Where(broadcast_along(op, outside, axis, count), value, data)
    return data if data.producer() is not None else op.Identity(data)


def _source(op, indices, length, last, mode):
    """The source index of each output element of an axis; in constant mode it may be outside of the axis."""
    if mode in ("constant", "edge"):
        return indices
    if mode == "wrap":
        return op.Mod(indices, length)
    if mode != "reflect":
        raise Unsupported(f"mode {mode!r}")
    period = op.Max(op.Mul(last, np.int64(2)), np.int64(1))
    return op.Sub(last, op.Abs(op.Sub(op.Mod(indices, period), last)))
