"""Ragged tensors: values with the splits, or row ids, of their rows."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import indices
from onnxbridge.frontends.tensorflow.indices import vector64
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.sizes import MOST, known_ints
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import ROWS, SORTED, cast, rank

D = ir.DataType


def _partition(op, kind, tensor, number):
    """One level of rows: the row and the column of each element, and the largest length of a row."""
    if kind == "ROW_SPLITS":
        splits = vector64(op, tensor)
        rows = indices.row_ids(op, splits)
        lengths = op.Sub(op.Slice(splits, [1], [MOST], [0]), op.Slice(splits, [0], [-1], [0]))
    elif kind == "VALUE_ROWIDS":
        rows = vector64(op, tensor)
        lengths = indices.lengths_of(op, rows, number)
        splits = indices.splits_of(op, lengths)
    else:
        raise Unsupported(f"rows partitioned by {kind}")
    return rows, indices.columns(op, rows, splits), indices.largest(op, lengths)


def _mark(kinds, tensors, values):
    """Say for verification which integers are valid."""
    for i, (kind, tensor) in enumerate(zip(kinds, tensors, strict=True)):
        inner = tensors[i + 1] if i + 1 < len(tensors) else values
        if kind == "ROW_SPLITS":
            size = inner, int(inner is not values and kinds[i + 1] == "ROW_SPLITS")
            tensor.meta[ROWS] = "splits", *size
            if (lengths := _summed_lengths(tensor)) is not None:
                lengths.meta[ROWS] = "lengths", *size
        elif kind == "VALUE_ROWIDS":
            tensor.meta[SORTED] = True


def _summed_lengths(splits):
    """The lengths of rows of which splits are computed; None for other splits."""
    concat = splits.producer()
    sums = concat.inputs[-1].producer() if concat is not None and concat.op_type == "Concat" else None
    return sums.inputs[0] if sums is not None and sums.op_type == "CumSum" else None


def _coordinates(op, kinds, tensors, values):
    """The index of each value in the dense tensor, [n, axes], and the size of each axis."""
    kinds, tensors = list(kinds), list(tensors)
    _mark(kinds, tensors, values)
    if kinds[0] == "FIRST_DIM_SIZE":
        number = vector64(op, tensors.pop(0))
        kinds.pop(0)
    else:
        number = op.Sub(indices.count(op, tensors[0]), 1)
    sizes, at = [number], None
    for kind, tensor in zip(kinds, tensors, strict=True):
        rows, column, longest = _partition(op, kind, tensor, number)
        outer = op.Unsqueeze(rows, [1]) if at is None else op.Gather(at, rows, axis=0)
        at = op.Concat(outer, op.Unsqueeze(column, [1]), axis=1)
        number = indices.count(op, rows)
        sizes.append(longest)
    return at, op.Concat(*sizes, axis=0)


@rule("RaggedTensorToTensor")
def ragged_tensor_to_tensor(op, shape, values, default_value, row_partition_tensors, *, row_partition_types):
    """Rows are filled up with the default value; sizes that `shape` gives cut what is longer."""
    at, sizes = _coordinates(op, row_partition_types, row_partition_tensors, values)
    inner = op.Shape(values, start=1)
    wanted = known_ints(shape)
    kept = values
    if wanted is None or any(w >= 0 for w in wanted):
        axes = op.Slice(vector64(op, shape), [0], indices.count(op, sizes), [0])
        sizes = op.Where(op.Less(axes, np.int64(0)), sizes, axes)
        inside = op.Equal(op.ReduceMin(op.Cast(op.Less(at, sizes), to=D.INT32), [1], keepdims=0), np.int32(1))
        at, kept = op.Compress(at, inside, axis=0), op.Compress(values, inside, axis=0)
    filled = op.Expand(default_value, op.Concat(sizes, inner, axis=0))
    return op.ScatterND(filled, at, kept)


@rule("RaggedTensorToSparse")
def ragged_tensor_to_sparse(op, rt_nested_splits, rt_dense_values):
    at, sizes = _coordinates(op, ["ROW_SPLITS"] * len(rt_nested_splits), rt_nested_splits, rt_dense_values)
    if rank(rt_dense_values) == 1:
        return at, rt_dense_values, sizes
    inner = op.Shape(rt_dense_values, start=1)
    number = op.ReduceProd(inner, [0], keepdims=0)
    every = indices.unravel(op, arange(op, number), inner)  # of the elements of one value
    outer, own = op.Unsqueeze(at, [1]), op.Unsqueeze(every, [0])
    values = indices.count(op, at)
    each = op.Reshape(number, [1])
    outer = op.Expand(outer, op.Concat(values, each, op.Shape(at, start=1), axis=0))
    own = op.Expand(own, op.Concat(values, each, op.Shape(every, start=1), axis=0))
    joined = op.Concat(outer, own, axis=2)
    return (
        op.Reshape(joined, op.Concat([-1], op.Shape(joined, start=2), axis=0)), op.Reshape(rt_dense_values, [-1]),
        op.Concat(sizes, inner, axis=0),
    )  # fmt: skip


@rule("RaggedRange")
def ragged_range(op, starts, limits, deltas, *, Tsplits=D.INT64):
    dtype = starts.dtype
    first, end, step = (op.Reshape(v, [-1]) for v in (starts, limits, deltas))
    span = op.Sub(end, first)
    one = np.array(1, dtype.numpy())
    if dtype.is_floating_point():
        number = op.Ceil(op.Div(span, step))
    else:
        number = op.Div(op.Sub(op.Add(op.Abs(span), op.Abs(step)), one), op.Abs(step))
        number = op.Mul(number, op.Mul(op.Sign(span), op.Sign(step)))
    lengths = op.Max(op.Cast(number, to=D.INT64), np.int64(0))
    splits = indices.splits_of(op, lengths)
    rows = indices.row_ids(op, splits)
    column = cast(op, indices.columns(op, rows, splits), dtype)
    first, step = (op.Gather(op.Expand(v, op.Shape(lengths)), rows, axis=0) for v in (first, step))
    return cast(op, splits, Tsplits), op.Add(first, op.Mul(column, step))


@rule("RaggedGather")
def ragged_gather(op, params_nested_splits, params_dense_values, indices_, *, OUTPUT_RAGGED_RANK):
    """Rows by index. Indices of more than one axis make the outer levels, whose rows all have the same length."""
    dtype = params_nested_splits[0].dtype
    _mark(["ROW_SPLITS"] * len(params_nested_splits), params_nested_splits, params_dense_values)
    found, number = [], None
    for axis in range(rank(indices_) - 1):
        outer, length = op.Shape(indices_, end=axis + 1), op.Shape(indices_, start=axis + 1, end=axis + 2)
        number = op.ReduceProd(outer, [0], keepdims=1)
        found.append(indices.splits_of(op, op.Expand(length, number)))
    at = vector64(op, indices_)
    for level in params_nested_splits:
        splits = vector64(op, level)
        starts = op.Gather(splits, at, axis=0)
        lengths = op.Sub(op.Gather(splits, op.Add(at, 1), axis=0), starts)
        at, _, own = indices.ranges(op, starts, lengths)
        found.append(own)
    return (*(cast(op, s, dtype) for s in found), op.Gather(params_dense_values, at, axis=0))


@rule("RaggedTensorToVariant", limits="one level of rows")
def ragged_tensor_to_variant(op, rt_nested_splits, rt_dense_values, *, batched_input):
    """A sequence of the rows, or a tensor that is one row."""
    if not batched_input and not rt_nested_splits:
        return rt_dense_values
    if not batched_input or len(rt_nested_splits) != 1:
        raise Unsupported(f"a list of ragged tensors with {len(rt_nested_splits)} levels of rows")
    _mark(["ROW_SPLITS"], rt_nested_splits, rt_dense_values)
    splits = vector64(op, rt_nested_splits[0])
    lengths = op.Sub(op.Slice(splits, [1], [MOST], [0]), op.Slice(splits, [0], [-1], [0]))
    return op.SplitToSequence(rt_dense_values, lengths, axis=0)


@rule("RaggedTensorFromVariant", limits="one level of rows, at least one row")
def ragged_tensor_from_variant(op, encoded_ragged, *, input_ragged_rank, output_ragged_rank, Tvalues, Tsplits=D.INT64):
    if not isinstance(encoded_ragged.type, ir.SequenceType) and not output_ragged_rank:
        return encoded_ragged
    if output_ragged_rank != 1 or input_ragged_rank > 0 or not isinstance(encoded_ragged.type, ir.SequenceType):
        raise Unsupported(f"a ragged tensor with {output_ragged_rank} levels of rows from a list")

    def body(i, condition):
        return condition, op.Shape(op.SequenceAt(encoded_ragged, i), start=0, end=1)

    lengths = op.Squeeze(op.Loop(op.SequenceLength(encoded_ragged), np.array(True), body=body, outputs=1), [1])
    return cast(op, indices.splits_of(op, lengths), Tsplits), op.ConcatFromSequence(encoded_ragged, axis=0)
