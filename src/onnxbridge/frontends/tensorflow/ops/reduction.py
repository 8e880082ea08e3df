"""Reductions and cumulative sums."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Int, Ints


def _reduce(op, kind, x, axes, keep_dims):
    return op.call(kind, x, list(axes), keepdims=int(keep_dims)) if axes else x


def _reduction(name, onnx, cast=False):
    @rule(name)
    def reduction(op, input, reduction_indices: Ints, *, keep_dims=False):
        return _reduce(op, onnx, input, reduction_indices, keep_dims)


for _name, _onnx in {"Sum": "ReduceSum", "Prod": "ReduceProd", "Max": "ReduceMax", "Min": "ReduceMin"}.items():
    _reduction(_name, _onnx)


@rule("Mean")
def mean(op, input, reduction_indices: Ints, *, keep_dims=False):
    ones = [None if input.shape is None else input.shape[a] for a in reduction_indices]
    if input.dtype.is_floating_point() and 0 not in ones:
        return _reduce(op, "ReduceMean", input, reduction_indices, keep_dims)
    total = _reduce(op, "ReduceSum", input, reduction_indices, keep_dims)
    if not all(isinstance(o, int) for o in ones):
        raise Unsupported("an integer mean over an unknown size")
    return op.Div(total, np.array(int(np.prod(ones)), input.dtype.numpy()))


@rule("EuclideanNorm")
def euclidean_norm(op, input, reduction_indices: Ints, *, keep_dims=False):
    return _reduce(op, "ReduceL2", input, reduction_indices, keep_dims) if reduction_indices else op.Abs(input)


def _logical(op, kind, x, axes, keep_dims):
    if not axes:
        return x
    return op.Cast(_reduce(op, kind, op.Cast(x, to=ir.DataType.INT32), axes, keep_dims), to=ir.DataType.BOOL)


@rule("All")
def all_(op, input, reduction_indices: Ints, *, keep_dims=False):
    return _logical(op, "ReduceMin", input, reduction_indices, keep_dims)


@rule("Any")
def any_(op, input, reduction_indices: Ints, *, keep_dims=False):
    return _logical(op, "ReduceSum", input, reduction_indices, keep_dims)  # 0 for no elements, unlike a maximum


def _arg(op, kind, x, axis, to):
    y = op.call(kind, x, axis=axis, keepdims=0)
    return y if to == ir.DataType.INT64 else op.Cast(y, to=to)


@rule("ArgMax")
def arg_max(op, input, dimension: Int, *, output_type=ir.DataType.INT64):
    return _arg(op, "ArgMax", input, dimension, output_type)


@rule("ArgMin")
def arg_min(op, input, dimension: Int, *, output_type=ir.DataType.INT64):
    return _arg(op, "ArgMin", input, dimension, output_type)


@rule("Cumsum")
def cumsum(op, x, axis: Int, *, exclusive=False, reverse=False):
    return op.CumSum(x, np.int64(axis), exclusive=int(exclusive), reverse=int(reverse))


@rule("Cumprod")
def cumprod(op, x, axis: Int, *, exclusive=False, reverse=False):
    return op.CumProd(x, np.int64(axis), exclusive=int(exclusive), reverse=int(reverse))


@rule("TopKV2")
def top_k_v2(op, input, k, *, sorted=True, index_type=ir.DataType.INT32):
    k = op.Reshape(k if k.dtype == ir.DataType.INT64 else op.Cast(k, to=ir.DataType.INT64), [1])
    values, indices = op.TopK(input, k, axis=rank(input) - 1, sorted=1, outputs=2)
    return values, indices if index_type == ir.DataType.INT64 else op.Cast(indices, to=index_type)
