"""Indexing: TopK, OneHot, Scatter and the negative axes and indices that opset 11 brought."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.adapters import down, up
from onnxbridge.hub.adapters.shapes import dtype_of, rank_of
from onnxbridge.rules import Int


@up("TopK", to=10)
def top_k(op, X, *, k, axis=-1):
    return op.TopK(X, [k], axis=axis, outputs=2)


@down("TopK", to=10)
def top_k_largest(op, X, K, *, axis=-1, largest=1, sorted=1):
    """Sorted results are one of the orders that an unsorted request allows."""
    if largest:
        return op.TopK(X, K, axis=axis, outputs=2)
    values, indices = op.TopK(op.Neg(X), K, axis=axis, outputs=2)
    return op.Neg(values), indices


@down("TopK", to=9)
def top_k_number(op, X, K: Int, *, axis=-1):
    return op.TopK(X, k=K, axis=axis, outputs=2)


@up("Scatter", to=11)
def scatter(op, data, indices, updates, *, axis=0):
    return op.ScatterElements(data, indices, updates, axis=axis)


@down("ScatterElements", to=10)
def scatter_elements(op, data, indices, updates, *, axis=0):
    return op.Scatter(data, indices, updates, axis=axis % rank_of(data) if axis < 0 else axis)


@down("OneHot", to=10)
def one_hot(op, indices, depth, values, *, axis=-1):
    return op.OneHot(indices, depth, values, axis=axis)


@down("GatherND", to=11)
def gather_nd(op, data, indices, *, batch_dims=0):
    if batch_dims:
        raise Unsupported("opset 12 added batch_dims")
    return op.GatherND(data, indices)


@down("Trilu", to=13)
def trilu(op, input, k=None, *, upper=1):
    """An element stays where its column, counted from its row on, is on the right side of `k`."""
    zero, one = np.array(0, np.int64), np.array(1, np.int64)
    rows, columns = (op.Range(zero, op.Gather(op.Shape(input), np.array(axis, np.int64)), one) for axis in (-2, -1))
    distance = op.Sub(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1]))
    k = zero if k is None else k
    outside = op.Less(distance, k) if upper else op.Greater(distance, k)
    return op.Where(outside, np.zeros((), dtype_of(input).numpy()), input)
