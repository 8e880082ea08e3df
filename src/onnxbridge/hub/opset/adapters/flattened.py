"""Sizes that may be known only when the model runs, and elements by their place in the flattened tensor."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.opset.known_values import known, rank_of

_INT64 = ir.DataType.INT64


def sizes(op, x):
    """The size of each axis: a number where it is fixed, otherwise a scalar value."""
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
    """How far apart in the flattened tensor two elements are that are neighbours on each axis."""
    found = [1]
    for size in reversed(shape[1:]):
        found.insert(0, times(op, size, found[0]))
    return found[-len(shape) :] if shape else []


def scaled(op, index, factor):
    """Places times a size."""
    return index if isinstance(factor, int) and factor == 1 else op.Mul(index, _value(op, factor))


def counted(op, count, each=None):
    """0, 1, 2 ... up to a number that is only known when the model runs, or what `each` makes of these."""
    nothing = np.array(0, np.int64)  # a loop had to carry something along
    each = each or op.Identity
    _, gathered = op.Loop(count, True, nothing, body=lambda step, going, held: [going, held, each(step)], outputs=2)
    return op.Reshape(gathered, [-1])  # the standard's evaluator stacks scalars as a column


def arange(op, size):
    """0, 1, 2 ... up to a size."""
    return counted(op, size) if isinstance(size, ir.Value) else op.constant(np.arange(size, dtype=np.int64))


def from_the_front(op, indices, sizes):
    """Indices of which none counts from the end; `sizes` is one size, or a list with one for each of the last axis."""
    found = known(indices)
    several = isinstance(sizes, list)
    if found is not None and all(isinstance(s, int) for s in (sizes if several else [sizes])):
        return op.constant(np.where(found < 0, found + np.array(sizes, np.int64), found).astype(np.int64))
    indices = op.Cast(indices, to=_INT64)
    behind = op.Cast(op.Less(op.Cast(indices, to=1), 0.0), to=_INT64)  # integers could not be compared before opset 9
    return op.Add(indices, op.Mul(behind, op.dims(sizes) if several else _value(op, sizes)))


def along_axis(op, data, indices, axis):
    """Indices along one axis as places in the flattened tensor."""
    shape, wanted = sizes(op, data), sizes(op, indices)
    axis %= len(shape)
    apart = strides(op, shape)
    place = scaled(op, from_the_front(op, indices, shape[axis]), apart[axis])
    fixed = np.zeros([1] * len(shape), np.int64)
    for d, size in enumerate(wanted):
        if d == axis:
            continue
        line = [-1 if i == d else 1 for i in range(len(shape))]
        if isinstance(size, int) and isinstance(apart[d], int):
            fixed = fixed + np.arange(size, dtype=np.int64).reshape(line) * apart[d]
        else:
            place = op.Add(place, op.Reshape(scaled(op, arange(op, size), apart[d]), line))
    return op.Add(place, fixed) if fixed.any() else place


def rows(op, data, indices, depth, batch):
    """The rows that index tuples point to, as numbers of rows of `data` flattened up to there; and the sizes behind."""
    shape, wanted = sizes(op, data), sizes(op, indices)
    ahead, inside, behind = shape[:batch], shape[batch : batch + depth], shape[batch + depth :]
    apart = strides(op, inside)
    index = from_the_front(op, indices, list(inside))
    index = op.Mul(index, op.constant(np.array(apart, np.int64)) if all(isinstance(a, int) for a in apart) else op.dims(apart))
    index = op.ReduceSum(index, axes=[len(wanted) - 1], keepdims=0)
    if batch:
        starts = scaled(op, arange(op, product(op, ahead)), product(op, inside))
        index = op.Add(index, op.Reshape(starts, op.dims([*ahead, *[1] * (len(wanted) - 1 - batch)])))
    return index, behind
