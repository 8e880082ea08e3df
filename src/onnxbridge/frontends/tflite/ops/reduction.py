"""Reductions and cumulative sums."""

import onnx_ir as ir

from onnxbridge.frontends.tensorflow.ops import reduction as tf
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.rules import Int, Ints


def _reduction(name, onnx, kind=""):
    @rule(name, kind=kind)
    def reduction(op, input, axes: Ints, *, keep_dims=False):
        return op.call(onnx, input, list(axes), keepdims=int(keep_dims)) if axes else input


for _name, _onnx in {"SUM": "ReduceSum", "REDUCE_PROD": "ReduceProd"}.items():
    _reduction(_name, _onnx)
for _name, _onnx in {"REDUCE_MAX": "ReduceMax", "REDUCE_MIN": "ReduceMin"}.items():
    _reduction(_name, _onnx, kind="move")


@rule("MEAN")
def mean(op, input, axes: Ints, *, keep_dims=False):
    return tf.mean(op, input, axes, keep_dims=keep_dims)


@rule("REDUCE_ALL")
def reduce_all(op, input, axes: Ints, *, keep_dims=False):
    return tf.all_(op, input, axes, keep_dims=keep_dims)


@rule("REDUCE_ANY")
def reduce_any(op, input, axes: Ints, *, keep_dims=False):
    return tf.any_(op, input, axes, keep_dims=keep_dims)


def _position(op, kind, x, axis, to):
    if x.dtype in (ir.DataType.BOOL, ir.DataType.INT16):
        x = op.Cast(x, to=ir.DataType.INT32)
    y = op.call(kind, x, axis=axis, keepdims=0)
    return y if to == ir.DataType.INT64 else op.Cast(y, to=to)


@rule("ARG_MAX")
def arg_max(op, input, dimension: Int, *, output_type=ir.DataType.INT64):
    return _position(op, "ArgMax", input, dimension, output_type)


@rule("ARG_MIN")
def arg_min(op, input, dimension: Int, *, output_type=ir.DataType.INT64):
    return _position(op, "ArgMin", input, dimension, output_type)


@rule("CUMSUM")
def cumsum(op, input, axis: Int, *, exclusive=False, reverse=False):
    return tf.cumsum(op, input, axis, exclusive=exclusive, reverse=reverse)


@rule("TOPK_V2")
def topk_v2(op, input, k):
    return tf.top_k_v2(op, input, k)
