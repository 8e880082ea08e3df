"""Reduction operators."""

import numpy as np

from onnxbridge.rules import Bool, Int, Ints, Str
from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.arithmetic import DTYPES


def _reduction(op, function):
    """Register a reduction by a NumPy function of (x, axis, keepdims); integer dtypes are preserved."""

    @rule(op)
    def reduce(x, axes: Ints | None = None, keep_dims: Bool = False):
        result = np.asarray(function(x, axis=axes, keepdims=keep_dims))
        return result.astype(x.dtype) if x.dtype.kind in "iu" else result


def _log_sum_exp(x, axis, keepdims):
    top = x.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.exp(x - top).sum(axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


_reduction("reduce_sum", np.sum)
_reduction("reduce_mean", np.mean)
_reduction("reduce_max", np.max)
_reduction("reduce_min", np.min)
_reduction("reduce_prod", np.prod)
_reduction("reduce_l1_norm", lambda x, axis, keepdims: np.abs(x).sum(axis, keepdims=keepdims))
_reduction("reduce_l2_norm", lambda x, axis, keepdims: np.sqrt(np.square(x).sum(axis, keepdims=keepdims)))
_reduction("reduce_log_sum", lambda x, axis, keepdims: np.log(x.sum(axis, keepdims=keepdims)))
_reduction("reduce_log_sum_exp", _log_sum_exp)
_reduction("reduce_sum_square", lambda x, axis, keepdims: np.square(x).sum(axis, keepdims=keepdims))


@rule("reduce_argmax")
def reduce_argmax(x, axis: Int = -1, keep_dims: Bool = False, output_dtype: Str = "int32"):
    return np.argmax(x, axis, keepdims=keep_dims).astype(DTYPES[output_dtype])


@rule("reduce_argmin")
def reduce_argmin(x, axis: Int = -1, keep_dims: Bool = False, output_dtype: Str = "int32"):
    return np.argmin(x, axis, keepdims=keep_dims).astype(DTYPES[output_dtype])


@rule("cumsum")
def cumsum(x, axis: Int = 0, exclusive: Bool = False, reverse: Bool = False):
    x = np.flip(x, axis) if reverse else x
    if exclusive:  # shift before summing; subtracting x from the sums would lose small elements
        x = np.insert(np.delete(x, -1, axis), 0, 0, axis)
    total = np.cumsum(x, axis, dtype=x.dtype)
    return np.flip(total, axis) if reverse else total
