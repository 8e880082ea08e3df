"""Helpers for axes and sizes that may be known only at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.values import rank as rank_of
from onnxbridge.hub.opset.known_values import known


def along(op, axis, rank, write, last=None):
    """Calls `write(axis)`; if the axis is not constant, writes a chain of If nodes with a branch for each axis up to `last`."""
    known_axis = known(axis)
    if known_axis is not None:
        return write(int(known_axis.reshape(())) % rank)
    index = op.Reshape(op.Cast(axis, to=ir.DataType.INT64), np.zeros(0, np.int64))
    is_negative = op.Cast(op.Less(index, np.array(0, np.int64)), to=ir.DataType.INT64)
    index = op.Add(index, op.Mul(is_negative, np.array(rank, np.int64)))

    def branch(k):
        if k == (rank - 1 if last is None else last):
            return write(k)
        matches = op.Equal(index, np.array(k, np.int64))
        return op.If(matches, then_branch=lambda: write(k), else_branch=lambda: branch(k + 1))

    return branch(0)


def arange(op: Any, size: Any) -> Any:
    """The indices 0 to size - 1; size is an integer or a scalar value."""
    return op.constant(np.arange(size)) if isinstance(size, int) else op.Range(np.int64(0), size, np.int64(1))


def scalar(op, size, dtype=ir.DataType.INT64):
    """A size (integer or scalar value) as a scalar value of a dtype."""
    value = op.constant(np.int64(size)) if isinstance(size, int) else size
    return value if dtype == ir.DataType.INT64 else op.Cast(value, to=dtype)


def product(op, sizes):
    """The product of sizes: an integer if all of them are, else a scalar value."""
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
    """The size of every axis, integers where they are static."""
    return [op.size(x, d) for d in range(rank_of(x))]


def reverse_first_axis(op, x):
    """Reverses the first axis, with a Slice: ONNX Runtime misreads a Gather by a Range that ends at -1."""
    return op.Slice(x, [-1], [np.iinfo(np.int64).min], [0], [-1])


def broadcast_along(op, values, axis, rank):
    """Reshapes a 1-D value so that it lies along `axis` of `rank` axes and broadcasts over the others."""
    return op.Reshape(values, [-1 if d == axis else 1 for d in range(rank)])
