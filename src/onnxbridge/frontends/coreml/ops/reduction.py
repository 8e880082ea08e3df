"""Reduction operators."""

import onnx_ir as ir

from onnxbridge.frontends.coreml.dtypes import onnx_dtype
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import cast, is_integer, like
from onnxbridge.rules import Bool, Int, Ints, Str


def _reduction(name, onnx):
    @rule(name)
    def reduce(op, x, axes: Ints | None = None, keep_dims: Bool = False):
        axes = list(axes) if axes else None
        if is_integer(x) and onnx in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
            exact = op.call(onnx, op.Cast(x, to=ir.DataType.DOUBLE), axes, keepdims=int(keep_dims))
            return like(op, exact, x)
        return op.call(onnx, x, axes, keepdims=int(keep_dims))


for _name, _onnx in {
    "reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd", "reduce_l1_norm": "ReduceL1", "reduce_l2_norm": "ReduceL2", "reduce_log_sum": "ReduceLogSum",
    "reduce_log_sum_exp": "ReduceLogSumExp", "reduce_sum_square": "ReduceSumSquare",
}.items():  # fmt: skip
    _reduction(_name, _onnx)


@rule("reduce_argmax")
def reduce_argmax(op, x, axis: Int = -1, keep_dims: Bool = False, output_dtype: Str = "int32"):
    return cast(op, op.ArgMax(x, axis=axis, keepdims=int(keep_dims)), onnx_dtype(output_dtype))


@rule("reduce_argmin")
def reduce_argmin(op, x, axis: Int = -1, keep_dims: Bool = False, output_dtype: Str = "int32"):
    return cast(op, op.ArgMin(x, axis=axis, keepdims=int(keep_dims)), onnx_dtype(output_dtype))


@rule("cumsum")
def cumsum(op, x, axis: Int = 0, exclusive: Bool = False, reverse: Bool = False):
    return op.CumSum(x, op.constant(axis), exclusive=int(exclusive), reverse=int(reverse))
