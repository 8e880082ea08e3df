"""Sparse tensors: indices [n, rank] in row-major order, values [n] and the dense shape."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import indices
from onnxbridge.frontends.tensorflow.indices import vector64
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import int64
from onnxbridge.hub.ir.values import rank, zero

D = ir.DataType


def dense(op, at, values, shape, default=None):
    """The dense tensor."""
    default = zero(values.dtype) if default is None else default
    return op.ScatterND(op.Expand(default, vector64(op, shape)), at, values)


@rule("SparseToDense")
def sparse_to_dense(op, sparse_indices, output_shape, sparse_values, default_value, *, validate_indices=True):
    """The indices are a matrix, a vector for a dense vector, or a scalar; a scalar value stands at each."""
    at = int64(op, sparse_indices)
    if rank(at) < 2:
        at = op.Reshape(at, [-1, 1])
    values = sparse_values if rank(sparse_values) else op.Expand(sparse_values, indices.count(op, at))
    return dense(op, at, values, output_shape, default_value)


@rule("SparseReshape")
def sparse_reshape(op, input_indices, input_shape, new_shape):
    total = op.ReduceProd(input_shape, [0], keepdims=1)
    given = op.ReduceProd(op.Where(op.Less(new_shape, np.int64(0)), np.int64(1), new_shape), [0], keepdims=1)
    shape = op.Where(op.Less(new_shape, np.int64(0)), op.Div(total, op.Max(given, np.int64(1))), new_shape)
    return indices.unravel(op, indices.ravel(op, input_indices, input_shape), shape), shape


@rule("SparseFillEmptyRows")
def sparse_fill_empty_rows(op, indices_, values, dense_shape, default_value):
    """Rows without values get the default value in their first column. Also which rows these are, and where values went."""
    rows = op.Gather(indices_, np.int64(0), axis=1)
    number = op.Slice(dense_shape, [0], [1], [0])
    lengths = indices.lengths_of(op, rows, number)
    empty = op.Equal(lengths, np.int64(0))
    splits = indices.splits_of(op, op.Max(lengths, np.int64(1)))
    starts = indices.splits_of(op, lengths)
    target = op.Add(op.Gather(splits, rows, axis=0), indices.columns(op, rows, starts))
    total = op.Gather(splits, [-1], axis=0)
    new_rows = op.Unsqueeze(indices.row_ids(op, splits), [1])
    width = op.Shape(indices_, start=1)
    first = op.Concat(new_rows, op.Expand(np.int64(0), op.Concat(total, op.Sub(width, 1), axis=0)), axis=1)
    at = op.Unsqueeze(target, [1])
    filled = op.ScatterND(op.Expand(default_value, total), at, values)
    return op.ScatterND(first, at, indices_), filled, empty, target


@rule("SparseReorder")
def sparse_reorder(op, input_indices, input_values, input_shape):
    at = indices.ravel(op, input_indices, input_shape)
    _, order = op.TopK(at, indices.count(op, at), axis=0, largest=0, outputs=2)
    return op.Gather(input_indices, order, axis=0), op.Gather(input_values, order, axis=0)


@rule("SparseTensorDenseMatMul")
def sparse_tensor_dense_mat_mul(op, a_indices, a_values, a_shape, b, *, adjoint_a=False, adjoint_b=False):
    """The rows of b that the columns select, scaled and added where the rows say."""
    b = op.Transpose(b, perm=[1, 0]) if adjoint_b else b
    row, column = (op.Gather(int64(op, a_indices), np.int64(int(i)), axis=1) for i in (adjoint_a, not adjoint_a))
    number = op.Slice(a_shape, [int(adjoint_a)], [int(adjoint_a) + 1], [0])
    scaled = op.Mul(op.Gather(b, column, axis=0), op.Unsqueeze(a_values, [1]))
    zeros = op.Expand(zero(b.dtype), op.Concat(number, op.Shape(b, start=1), axis=0))
    return op.ScatterND(zeros, op.Unsqueeze(row, [1]), scaled, reduction="add")


@rule("SparseTensorDenseAdd")
def sparse_tensor_dense_add(op, a_indices, a_values, a_shape, b):
    return op.ScatterND(b, int64(op, a_indices), a_values, reduction="add")


def _elementwise(name, onnx):
    @rule(name)
    def computed(op, sp_indices, sp_values, sp_shape, dense):
        """The dense tensor is broadcast to the sparse one."""
        return op.call(onnx, sp_values, op.GatherND(op.Expand(dense, sp_shape), sp_indices))


for _name, _onnx in {"SparseDenseCwiseAdd": "Add", "SparseDenseCwiseMul": "Mul", "SparseDenseCwiseDiv": "Div"}.items():
    _elementwise(_name, _onnx)


def _reduction(name, onnx):
    @rule(name)
    def reduced(op, input_indices, input_values, input_shape, reduction_axes, *, keep_dims=False):
        axes = vector64(op, reduction_axes)
        return op.call(onnx, dense(op, input_indices, input_values, input_shape), axes, keepdims=int(keep_dims))


_reduction("SparseReduceSum", "ReduceSum")
