"""Static or dynamic sizes, and flat indices of elements."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.opset.known_values import known, rank_of

_INT64 = ir.DataType.INT64


def sizes(op, x):
    """The size of each axis: an integer if static, otherwise a scalar value."""
    found = list(x.shape) if x.shape is not None else [None] * rank_of(x)
    if all(isinstance(d, int) for d in found):
        return found
    shape = op.Shape(x)
    return [d if isinstance(d, int) else op.Gather(shape, np.array(i, np.int64), axis=0) for i, d in enumerate(found)]


def times(op, a, b):
    """The product of two sizes."""
    if not isinstance(a, ir.Value) and not isinstance(b, ir.Value):
        return int(a) * int(b)
    if not isinstance(a, ir.Value):
        a, b = b, a
    return a if isinstance(b, int) and b == 1 else op.Mul(a, _value(op, b))


def _value(op, size):
    return size if isinstance(size, ir.Value) else op.constant(np.array(size, np.int64))


def product(op, factors):
    total = 1
    for f in factors:
        total = times(op, total, f)
    return total


def strides(op, shape):
    """The row-major strides of a shape, in elements."""
    found = [1]
    for size in reversed(shape[1:]):
        found.insert(0, times(op, size, found[0]))
    return found[-len(shape) :] if shape else []


def scaled(op, index, factor):
    """An index multiplied by a size."""
    return index if isinstance(factor, int) and factor == 1 else op.Mul(index, _value(op, factor))


def map_range(op, count, each=None):
    """0, 1, 2 ... up to a dynamic count, or the results of `each` for these."""
    state = np.array(0, np.int64)  # a loop was required to have a state
    each = each or op.Identity
    _, gathered = op.Loop(count, True, state, body=lambda i, condition, v: [condition, v, each(i)], outputs=2)
    return op.Reshape(gathered, [-1])  # the standard's evaluator stacks scalars as a column


def arange(op, size):
    """0, 1, 2 ... up to a size."""
    return map_range(op, size) if isinstance(size, ir.Value) else op.constant(np.arange(size, dtype=np.int64))


def non_negative(op, indices, sizes):
    """Non-negative indices; `sizes` is one size, or a list of one per element of the last axis."""
    found = known(indices)
    several = isinstance(sizes, list)
    if found is not None and all(isinstance(s, int) for s in (sizes if several else [sizes])):
        return op.constant(np.where(found < 0, found + np.array(sizes, np.int64), found).astype(np.int64))
    indices = op.Cast(indices, to=_INT64)
    negative = op.Cast(op.Less(op.Cast(indices, to=1), 0.0), to=_INT64)  # integers could not be compared before opset 9
    return op.Add(indices, op.Mul(negative, op.dims(sizes) if several else _value(op, sizes)))


def along_axis(op, data, indices, axis):
    """Indices along one axis as flat indices."""
    shape, index_shape = sizes(op, data), sizes(op, indices)
    axis %= len(shape)
    steps = strides(op, shape)
    flat = scaled(op, non_negative(op, indices, shape[axis]), steps[axis])
    fixed = np.zeros([1] * len(shape), np.int64)
    for d, size in enumerate(index_shape):
        if d == axis:
            continue
        line = [-1 if i == d else 1 for i in range(len(shape))]
        if isinstance(size, int) and isinstance(steps[d], int):
            fixed = fixed + np.arange(size, dtype=np.int64).reshape(line) * steps[d]
        else:
            flat = op.Add(flat, op.Reshape(scaled(op, arange(op, size), steps[d]), line))
    return op.Add(flat, fixed) if fixed.any() else flat


def rows(op, data, indices, depth, batch):
    """The flat row index of each index tuple in `data` flattened over the indexed axes, and the sizes of the remaining axes."""
    shape, index_shape = sizes(op, data), sizes(op, indices)
    leading, indexed, trailing = shape[:batch], shape[batch : batch + depth], shape[batch + depth :]
    steps = strides(op, indexed)
    index = non_negative(op, indices, list(indexed))
    index = op.Mul(index, op.constant(np.array(steps, np.int64)) if all(isinstance(s, int) for s in steps) else op.dims(steps))
    index = op.ReduceSum(index, axes=[len(index_shape) - 1], keepdims=0)
    if batch:
        starts = scaled(op, arange(op, product(op, leading)), product(op, indexed))
        index = op.Add(index, op.Reshape(starts, op.dims([*leading, *[1] * (len(index_shape) - 1 - batch)])))
    return index, trailing
