"""Shapes, repetition and triangles."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops import shape as version_1
from onnxbridge.frontends.mxnet.ops.types import as_tuple, named
from onnxbridge.hub.ir.values import cast, rank


@rule("_npi_repeats")
def repeats(op, data, *, repeats, axis=None):
    """How often each element is repeated, or one number for all."""
    counts = as_tuple(repeats)
    if len(counts) == 1:
        return version_1.repeat(op, data, repeats=counts[0], axis=axis)
    if axis is None:
        data, axis = op.Reshape(data, [-1]), 0
    return op.Gather(data, np.repeat(np.arange(len(counts)), counts), axis=axis % rank(data))


@rule("_npi_rollaxis")
def rollaxis(op, data, *, axis, start=0):
    """An axis moves in front of the axis `start`."""
    count = rank(data)
    axis, start = axis % count, start + count if start < 0 else start
    order = [i for i in range(count) if i != axis]
    order.insert(start - (axis < start), axis)
    return op.Transpose(data, perm=order)


@rule("_npi_tri")
def tri(op, *, N, M=None, k=0, dtype="float32"):
    return op.constant(np.tri(N, M, k).astype(named(dtype).numpy()))


@rule("_npi_triu")
def triu(op, data, *, k=0):
    """A vector stands for the matrix whose rows are that vector."""
    if rank(data) == 1:
        data = op.Expand(data, op.Concat(op.Shape(data), op.Shape(data), axis=0))
    return op.Trilu(data, op.constant(np.int64(k)), upper=1)


@rule("_contrib_dynamic_reshape")
def dynamic_reshape(op, data, shape):
    """0 keeps a size, and -1 is what remains."""
    return op.Reshape(data, cast(op, shape, np.int64))
