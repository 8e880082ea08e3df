"""An axis that may be known only when the model runs."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.values import rank as rank_of
from onnxbridge.hub.opset.known_values import known


def along(op, axis, rank, write, last=None):
    """What `write(axis)` writes; where the axis is computed, a branch for each that it may be, up to the `last` one."""
    found = known(axis)
    if found is not None:
        return write(int(found.reshape(())) % rank)
    place = op.Reshape(op.Cast(axis, to=ir.DataType.INT64), np.zeros(0, np.int64))
    behind = op.Cast(op.Less(place, np.array(0, np.int64)), to=ir.DataType.INT64)
    place = op.Add(place, op.Mul(behind, np.array(rank, np.int64)))

    def branch(k):
        if k == (rank - 1 if last is None else last):
            return write(k)
        hit = op.Equal(place, np.array(k, np.int64))
        return op.If(hit, then_branch=lambda: write(k), else_branch=lambda: branch(k + 1))

    return branch(0)


def places(op, size):
    """0, 1, 2 ... up to a size that is a number or a scalar value."""
    return op.constant(np.arange(size)) if isinstance(size, int) else op.Range(np.int64(0), size, np.int64(1))


def scalar(op, size, dtype=ir.DataType.INT64):
    """A size, a number or a scalar value, as a value of a dtype."""
    value = op.constant(np.int64(size)) if isinstance(size, int) else size
    return value if dtype == ir.DataType.INT64 else op.Cast(value, to=dtype)


def product(op, sizes):
    """The product of sizes, a number where all are."""
    total = 1
    for size in sizes:
        if isinstance(total, int):
            total = total * size if isinstance(size, int) else size if total == 1 else op.Mul(size, total)
        else:
            total = total if isinstance(size, int) and size == 1 else op.Mul(total, size)
    return total


def element(op, values, i):
    """One element of a 1-D value as a scalar."""
    return op.Squeeze(op.Slice(values, [i], [i + 1], [0]), [0])


def sizes_of(op, x):
    """The size of every axis, numbers where they are fixed."""
    return [op.size(x, d) for d in range(rank_of(x))]


def reversed_along_first(op, x):
    """By a slice: ONNX Runtime takes a gather by a range that ends at -1 for one up to the last element."""
    return op.Slice(x, [-1], [np.iinfo(np.int64).min], [0], [-1])


def laid(op, values, axis, rank):
    """A 1-D value along one axis of a rank, so that it broadcasts over the others."""
    return op.Reshape(values, [-1 if d == axis else 1 for d in range(rank)])
