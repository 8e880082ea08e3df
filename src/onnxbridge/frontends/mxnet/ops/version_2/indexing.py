"""Indexing by arrays, and changes at indices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.ir.values import cast, like, rank

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


@rule("_npi_advanced_indexing")
def advanced_indexing(op, data, indices):
    """Rows by number, or the elements where a mask of the first axes holds."""
    if indices.dtype != BOOL:
        return op.Gather(data, cast(op, indices, INT64), axis=0)
    if rank(indices) == 1:
        return op.Compress(data, indices, axis=0)
    return op.GatherND(data, op.Transpose(op.NonZero(indices), perm=[1, 0]))


@rule("_npi_advanced_indexing_multiple")
def advanced_indexing_multiple(op, data, indices):
    """The first axis of the indices enumerates the axes of the data."""
    return op.GatherND(data, _last(op, indices))


def _last(op, indices):
    return op.Transpose(cast(op, indices, INT64), perm=[*range(1, rank(indices)), 0])


def _at(op, a, ind, val, reduction):
    places = _last(op, ind)
    rest = op.Shape(a, start=ind.shape[0], end=rank(a)) if isinstance(ind.shape[0], int) else None
    if rest is None:
        raise Unsupported("indices of a dynamic number of axes are not supported", hint="give them a fixed shape")
    shape = op.Concat(op.Shape(places, start=0, end=rank(ind) - 1), rest, axis=0)
    return op.ScatterND(a, places, op.Expand(like(op, val, a), shape), reduction=reduction)


@rule("_npx_index_add")
def index_add(op, a, ind, val):
    return _at(op, a, ind, val, "add")


@rule("_npx_index_update")
def index_update(op, a, ind, val):
    return _at(op, a, ind, val, "none")


@rule("_npi_tril_indices")
def tril_indices(op, *, n, m, k=0):
    return tuple(op.constant(i.astype(np.int64)) for i in np.tril_indices(n, k, m))
