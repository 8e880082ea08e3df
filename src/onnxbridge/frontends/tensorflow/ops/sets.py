"""Sets, which are the rows along the last axis."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow import indices
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.standard.dynamic_axis import arange
from onnxbridge.hub.ir.values import cast

D = ir.DataType


def _rows(op, x):
    return op.Reshape(x, op.Concat([-1], op.Shape(x, start=-1), axis=0), allowzero=1)


def _contained(op, a, b, before=False):
    """Whether each element of a [rows, m] is in its row of b [rows, k]; with `before`, at a smaller index."""
    same = op.Equal(op.Unsqueeze(a, [2]), op.Unsqueeze(b, [1]))
    if before:
        same = op.And(same, op.Less(op.Unsqueeze(arange(op, op.size(b, 1)), [0]), op.Unsqueeze(arange(op, op.size(a, 1)), [1])))
    return op.Greater(op.ReduceSum(op.Cast(same, to=D.INT32), [2], keepdims=0), np.int32(0))


@rule("DenseToDenseSetOperation")
def dense_to_dense_set_operation(op, set1, set2, *, set_operation, validate_indices=True):
    """A sparse tensor of each row's elements in ascending order. `set_operation`: a-b, b-a, intersection or union."""
    if set_operation == "b-a":
        set1, set2 = set2, set1
    a, b = _rows(op, set1), _rows(op, set2)
    kept = op.Not(_contained(op, a, a, before=True))
    if set_operation == "union":
        other = op.And(op.Not(_contained(op, b, a)), op.Not(_contained(op, b, b, before=True)))
        elements, kept = op.Concat(a, b, axis=1), op.Concat(kept, other, axis=1)
    elif set_operation in ("a-b", "b-a", "intersection"):
        inside = _contained(op, a, b)
        elements, kept = a, op.And(kept, inside if set_operation == "intersection" else op.Not(inside))
    else:
        raise Unsupported(f"the set operation {set_operation!r}")
    return _sorted(op, elements, kept, op.Shape(set1, end=-1))


def _sorted(op, elements, kept, outer):
    """The kept elements of each row by size, as a sparse tensor whose outer axes have these sizes."""
    keys = elements if elements.dtype == D.STRING else cast(op, elements, D.INT64)
    _, _, ranks, _ = op.Unique(op.Reshape(keys, [-1]), sorted=1, outputs=4)
    ranks = op.Where(kept, op.Reshape(ranks, op.Shape(elements), allowzero=1), np.int64(1 << 60))
    width = op.Shape(elements, start=1)
    _, order = op.TopK(ranks, width, axis=1, largest=0, outputs=2)
    found = op.GatherElements(elements, order, axis=1)
    lengths = op.ReduceSum(op.Cast(kept, to=D.INT64), [1], keepdims=0)
    at = indices.positions(op, op.Less(arange(op, op.size(elements, 1)), op.Unsqueeze(lengths, [1])))
    row, column = (op.Gather(at, np.int64(i), axis=1) for i in (0, 1))
    unraveled = indices.unravel(op, row, outer)
    shape = op.Concat(outer, indices.largest(op, lengths), axis=0)
    return op.Concat(unraveled, op.Unsqueeze(column, [1]), axis=1), op.GatherND(found, at), shape
