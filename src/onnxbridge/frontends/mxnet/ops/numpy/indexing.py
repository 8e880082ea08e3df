"""Selection by conditions and indices, insertion, deletion, and sizes that depend on values."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.indexing import bounded
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.values import cast, like, rank

BOOL, INT32, INT64 = ir.DataType.BOOL, ir.DataType.INT32, ir.DataType.INT64


@rule("_npi_where")
def where(op, condition, x, y):
    return op.Where(cast(op, condition, BOOL), x, y)


def _number(op, scalar, like_):
    return op.constant(np.asarray(scalar).astype(like_.dtype.numpy()))


@rule("_npi_where_lscalar")
def where_lscalar(op, condition, x, *, scalar=0.0):
    """The scalar where the condition holds, the array elsewhere."""
    return op.Where(cast(op, condition, BOOL), _number(op, scalar, x), x)


@rule("_npi_where_rscalar")
def where_rscalar(op, condition, y, *, scalar=0.0):
    return op.Where(cast(op, condition, BOOL), y, _number(op, scalar, y))


@rule("_npi_where_scalar2")
def where_scalar2(op, condition, *, x=0.0, y=0.0):
    return op.Where(cast(op, condition, BOOL), np.float32(x), np.float32(y))


@rule("_npx_nonzero")
def nonzero(op, x):
    """The coordinates of the elements that are not zero, one in a row."""
    return op.Transpose(op.NonZero(cast(op, x, BOOL)), perm=[1, 0])


@rule("_npi_unique")
def unique(op, data, *, return_index=False, return_inverse=False, return_counts=False, axis=None):
    """Sorted distinct elements; for each its first index and its count, and the inverse."""
    wide = data if data.dtype.is_floating_point() else cast(op, data, INT64)
    values, first, inverse, counts = op.Unique(wide, axis=axis, sorted=1, outputs=4)
    found = [like(op, values, data)]
    found += [v for v, wanted in ((first, return_index), (inverse, return_inverse), (counts, return_counts)) if wanted]
    return tuple(found) if len(found) > 1 else found[0]


@rule("_npi_diag_indices_from")
def diag_indices_from(op, data):
    size = data.shape[0]
    if not isinstance(size, int):
        raise Unsupported("the diagonal of an array of dynamic size", hint="give the input a fixed shape")
    return op.constant(np.stack([np.arange(size)] * rank(data)).astype(np.int64))


@rule("_npx_constraint_check", limits="a violated constraint is not an error, its result is False")
def constraint_check(op, input, *, msg="Constraint violated."):
    return op.Cast(op.ReduceMin(op.Cast(cast(op, input, BOOL), to=INT32), keepdims=0), to=BOOL)


# insertion and deletion


def _along(op, arr, axis):
    """The array and a nonnegative axis; without one, of the flattened array."""
    return (op.Reshape(arr, [-1]), 0) if axis is None else (arr, axis % rank(arr))


def _selected(op, arr, axis, obj, start, stop, step, int_ind):
    """The positions: a constant array where they are known, otherwise an int64 value."""
    size = op.size(arr, axis)
    if obj is not None:
        known = constant_array(obj)
        if known is None:
            return bounded(op, op.Reshape(obj, [-1]), size, "raise")
        return np.asarray(known).reshape(-1).astype(np.int64)
    if int_ind is not None:
        return np.array([int_ind], np.int64)
    if not isinstance(size, int):
        raise Unsupported("a slice of a dynamic size is not supported", hint="give the input a fixed shape")
    return np.arange(size)[slice(start, stop, step)]


def _insert(op, arr, values, obj, val, start, stop, step, int_ind, axis):
    """Rows in front of the given positions of the old ones, by sorting both by their position."""
    arr, axis = _along(op, arr, axis)
    chosen = _selected(op, arr, axis, obj, start, stop, step, int_ind)
    size = op.size(arr, axis)
    values = op.constant(np.asarray(val).astype(arr.dtype.numpy())) if values is None else like(op, values, arr)
    if int_ind is not None and rank(values):  # its first axis is the one along which it is inserted
        values = op.Unsqueeze(values, list(range(rank(arr) - rank(values)))) if rank(values) < rank(arr) else values
        order = list(range(1, rank(values)))
        order.insert(axis, 0)
        values = op.Transpose(values, perm=order)
        count = op.size(values, axis)
    else:
        count = len(chosen) if isinstance(chosen, np.ndarray) else op.size(chosen, 0)
        if isinstance(chosen, np.ndarray) and len(chosen) == 1 and rank(values) == rank(arr):
            count = op.size(values, axis)
    values = op.Expand(values, op.dims([count if i == axis else op.size(arr, i) for i in range(rank(arr))]))
    if isinstance(size, int) and isinstance(count, int) and isinstance(chosen, np.ndarray):
        positions = chosen if len(chosen) == count else np.repeat(chosen, count)
        order = np.insert(np.arange(size), positions, size + np.arange(count))
        return op.Gather(op.Concat(arr, values, axis=axis), order, axis=axis)
    chosen = op.constant(chosen)
    chosen = op.Where(op.Less(chosen, 0), op.Add(chosen, size), chosen)
    old = op.Add(op.Mul(op.Range(op.constant(np.int64(0)), op.constant(np.int64(size)), op.constant(np.int64(1))), 2), 1)
    keys = op.Concat(old, op.Expand(op.Mul(chosen, 2), op.dims([count])), axis=0)
    order = op.TopK(keys, op.Shape(keys), largest=0, outputs=2)[1]
    return op.Gather(op.Concat(arr, values, axis=axis), order, axis=axis)


@rule("_npi_insert_scalar", "_npi_insert_slice")
def insert(op, arr, values=None, *, val=None, start=None, stop=None, step=None, int_ind=None, axis=None):
    return _insert(op, arr, values, None, val, start, stop, step, int_ind, axis)


@rule("_npi_insert_tensor")
def insert_tensor(op, arr, values, obj=None, *, val=None, start=None, stop=None, step=None, int_ind=None, axis=None):
    """With a value among the attributes, the second input is the positions."""
    if val is not None:
        values, obj = None, values
    return _insert(op, arr, values, obj, val, start, stop, step, int_ind, axis)


@rule("_npi_delete")
def delete(op, arr, obj=None, *, start=None, stop=None, step=None, int_ind=None, axis=None):
    """Without the rows at the given positions. Negative positions count from the end, but not those in an array."""
    arr, axis = _along(op, arr, axis)
    size = op.size(arr, axis)
    if obj is None:
        chosen = _selected(op, arr, axis, None, start, stop, step, int_ind)
        if isinstance(size, int):
            return op.Gather(arr, np.delete(np.arange(size), chosen), axis=axis)
        chosen = op.Add(op.constant(chosen), size) if int_ind < 0 else op.constant(chosen)
    else:
        chosen = op.Reshape(cast(op, obj, INT64), [-1])
    rows = op.Range(op.constant(np.int64(0)), op.constant(np.int64(size)), op.constant(np.int64(1)))
    deleted = op.ReduceMax(op.Cast(op.Equal(op.Unsqueeze(rows, [1]), chosen), to=INT32), [1], keepdims=0)
    return op.Compress(arr, op.Equal(deleted, np.int32(0)), axis=axis)
