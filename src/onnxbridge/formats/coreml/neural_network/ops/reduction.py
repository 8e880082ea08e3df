"""Reduction layers."""

import numpy as np

from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.formats.coreml.neural_network.ops.arithmetic import float32

AXES = {"CHW": (-3, -2, -1), "HW": (-2, -1), "C": (-3,), "H": (-2,), "W": (-1,)}
MODES = {
    "SUM": "sum", "AVG": "mean", "PROD": "prod", "SUMSQUARE": "sum_square", "L1": "l1_norm", "L2": "l2_norm", "MAX": "max",
    "MIN": "min",
}  # fmt: skip


@rule("reduce")
def reduce(mil, x, *, mode="SUM", epsilon=0.0, axis="CHW"):
    axes = AXES[axis]
    if mode == "ARGMAX":
        return mil.cast(x=mil.reduce_argmax(x=x, axis=axes[0], keep_dims=True), dtype="fp32")
    if mode == "LOGSUM":
        x, mode = mil.log(x=x, epsilon=float32(epsilon)), "SUM"
    return mil.emit(f"reduce_{MODES[mode]}", x=x, axes=np.array(axes), keep_dims=True)


def _reduction(layer, op):
    @rule(layer)
    def reduce(mil, x, *, axes=(), keepDims=False, reduceAll=False):
        given = {} if reduceAll else {"axes": np.array(axes)}
        return mil.at_least_rank(x=mil.emit(op, x=x, keep_dims=bool(keepDims), **given), rank=1)


for _name, _op in {
    "L1": "l1_norm", "L2": "l2_norm", "Max": "max", "Min": "min", "Sum": "sum", "Prod": "prod", "Mean": "mean",
    "LogSum": "log_sum", "SumSquare": "sum_square", "LogSumExp": "log_sum_exp",
}.items():  # fmt: skip
    _reduction(f"reduce{_name}", f"reduce_{_op}")


def _as_blob(mil, indices):
    return mil.cast(x=mil.at_least_rank(x=indices, rank=1), dtype="fp32")


@rule("argMax")
def arg_max(mil, x, *, axis=0, removeDim=False):
    return _as_blob(mil, mil.reduce_argmax(x=x, axis=axis, keep_dims=not removeDim))


@rule("argMin")
def arg_min(mil, x, *, axis=0, removeDim=False):
    return _as_blob(mil, mil.reduce_argmin(x=x, axis=axis, keep_dims=not removeDim))


@rule("cumSum")
def cum_sum(mil, x, axis_blob=None, *, axis=0, excludeFinalSum=False, reverse=False):
    if axis_blob is not None:
        axis = mil.cast(x=mil.squeeze(x=axis_blob), dtype="int32")
    return mil.cumsum(x=x, axis=axis, exclusive=excludeFinalSum, reverse=reverse)
