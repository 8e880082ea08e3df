"""Flat and multi-dimensional indices, and the rows of vectors that are split into rows of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.tensorflow import sizes
from onnxbridge.frontends.tensorflow.sizes import MOST, int64
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange

INT64 = ir.DataType.INT64


def positions(op: Any, mask: Any) -> Any:
    """The indices [n, rank] of the elements of a mask that are true, in row-major order."""
    return op.Transpose(op.NonZero(mask), perm=[1, 0])


def count(op: Any, vector: Any) -> Any:
    """The number of elements of a vector, as a vector of one element."""
    return op.Shape(vector, start=0, end=1)


def largest(op: Any, vector: Any) -> Any:
    """The largest element of a vector of numbers that are not negative, as a vector of one element; 0 if it is empty."""
    return op.ReduceMax(op.Concat(vector, [0], axis=0), [0], keepdims=1)


def _strides(op: Any, shape: Any) -> Any:
    """How far apart two neighbors along each axis are in a flat tensor."""
    n = None if shape.shape is None else shape.shape[0]
    if not isinstance(n, int):
        return op.CumProd(shape, np.int64(0), exclusive=1, reverse=1)
    found, each = [1], sizes.elements(op, shape, n)
    for size in each[:0:-1]:
        found.insert(0, sizes.multiply(op, found[0], size))
    return op.dims(found[:n])


def ravel(op: Any, indices: Any, shape: Any) -> Any:
    """Indices [n, rank] of a tensor of this shape as indices [n] of the flat tensor."""
    return op.ReduceSum(op.Mul(indices, _strides(op, shape)), [1], keepdims=0)


def unravel(op: Any, index: Any, shape: Any) -> Any:
    """Indices [n] of a flat tensor as indices [n, rank] of one of this shape."""
    return op.Mod(op.Div(op.Unsqueeze(index, [1]), op.Max(_strides(op, shape), np.int64(1))), op.Max(shape, np.int64(1)))


def splits_of(op: Any, lengths: Any) -> Any:
    """Where each row starts, and the end of the last one, for rows of these lengths."""
    return op.CumSum(op.Concat([0], lengths, axis=0), np.int64(0))


def row_ids(op: Any, splits: Any) -> Any:
    """The row of each element, for rows that end where `splits` says: [0, 2, 2, 3] gives [0, 0, 2]."""
    ends = op.Slice(splits, [1], [MOST], [0])
    total = op.Gather(splits, [-1], axis=0)
    marks = op.Expand(np.int64(0), op.Add(total, 1))
    marks = op.ScatterElements(marks, ends, op.Expand(np.int64(1), op.Shape(ends)), axis=0, reduction="add")
    return op.Slice(op.CumSum(marks, np.int64(0)), [0], total, [0])


def lengths_of(op: Any, rows: Any, number: Any) -> Any:
    """How many elements each of `number` rows has; `number` is a vector of one element."""
    zeros, ones = op.Expand(np.int64(0), number), op.Expand(np.int64(1), op.Shape(rows))
    return op.ScatterElements(zeros, rows, ones, axis=0, reduction="add")


def columns(op: Any, rows: Any, splits: Any) -> Any:
    """The index of each element within its row."""
    numbers = arange(op, op.size(rows, 0))
    return op.Sub(numbers, op.Gather(splits, rows, axis=0))


def ranges(op: Any, starts: Any, lengths: Any) -> tuple[Any, Any, Any]:
    """start, start + 1, ... of each row, one row after the other; with the rows of the elements and the splits."""
    splits = splits_of(op, lengths)
    rows = row_ids(op, splits)
    return op.Add(op.Gather(starts, rows, axis=0), columns(op, rows, splits)), rows, splits


def vector64(op: Any, x: Any) -> Any:
    """Integers as a vector of int64."""
    return op.Reshape(int64(op, x), [-1])
