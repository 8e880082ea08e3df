"""Lists of tensors, represented as one tensor with the elements along its first axis."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.coreml.dtypes import onnx_dtype
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, rank
from onnxbridge.rules import Bool, Str

INT64 = ir.DataType.INT64


@rule("make_list")
def make_list(op, elem_shape, init_length=1, dynamic_length: Bool = True, dtype: Str = "fp32"):
    """A dynamic size, which is a string, is 0 until an element is written."""
    sizes = [op.constant(n) for n in (init_length, *elem_shape)]
    shape = op.Concat(
        *([0] if n.dtype == ir.DataType.STRING else op.Reshape(cast(op, n, INT64), [1]) for n in sizes), axis=0
    )  # fmt: skip
    return op.Expand(op.constant(np.zeros((), onnx_dtype(dtype).numpy())), shape)


@rule("list_length")
def list_length(op, ls):
    return op.Cast(op.Squeeze(op.Shape(ls, start=0, end=1), [0]), to=ir.DataType.INT32)


def _extended(op, ls, last, element):
    """Extend the list with zeros up to the index `last`, which only exceeds it if its length is dynamic.

    Dynamic sizes of its elements are extended to those of the written element, too.
    """
    count = op.Add(op.Reshape(last, [1]), 1)
    known = all(isinstance(n, int) and n for n in ls.shape[1:])
    required = count if known else op.Concat(count, element, axis=0)
    missing = op.Max(op.Sub(required, op.Shape(ls, start=0, end=1) if known else op.Shape(ls)), [0])
    return op.Pad(ls, op.Concat([0] * rank(ls), missing, *([[0] * (rank(ls) - 1)] if known else []), axis=0))


@rule("list_write")
def list_write(op, ls, index, value):
    index = op.Cast(index, to=INT64)
    return op.ScatterND(_extended(op, ls, index, op.Shape(value)), op.Reshape(index, [1, 1]), op.Unsqueeze(value, [0]))


@rule("list_read")
def list_read(op, ls, index):
    return op.Gather(ls, op.Reshape(index, []), axis=0)


@rule("list_gather")
def list_gather(op, ls, indices):
    return op.Gather(ls, op.Reshape(indices, [-1]), axis=0)


@rule("list_scatter")
def list_scatter(op, ls, indices, value):
    indices = op.Reshape(op.Cast(indices, to=INT64), [-1, 1])
    return op.ScatterND(_extended(op, ls, op.ReduceMax(indices, keepdims=0), op.Shape(value, start=1)), indices, value)
