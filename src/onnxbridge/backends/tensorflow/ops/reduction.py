"""Reductions over axes, and cumulative sums and products."""

from __future__ import annotations

import math

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import known, size


def _as_float(x):
    return tf.cast(x, tf.float64) if x.dtype.is_integer else x


def _mean(x, axes, keepdims):
    if not x.dtype.is_integer:
        return tf.reduce_mean(x, axes, keepdims)
    count = tf.reduce_sum(tf.ones_like(x), axes, keepdims)
    return tf.truncatediv(tf.reduce_sum(x, axes, keepdims), count)


def _boolean(of_bool, function, of_nothing):
    def reduce(x, axes, keepdims):
        if x.dtype == tf.bool:
            return of_bool(x, axes, keepdims)
        found = function(x, axes, keepdims)
        if not x.dtype.is_floating:
            return found
        # TensorFlow returns the lowest finite number for an empty axis
        nothing = tf.reduce_sum(tf.ones_like(x, tf.int32), axes, keepdims) == 0
        return tf.where(nothing, tf.cast(of_nothing, x.dtype), found) if 0 in x.shape.as_list() else found

    return reduce


REDUCTIONS = {
    "ReduceSum": tf.reduce_sum,
    "ReduceProd": tf.reduce_prod,
    "ReduceMean": _mean,
    "ReduceMax": _boolean(tf.reduce_any, tf.reduce_max, -math.inf),
    "ReduceMin": _boolean(tf.reduce_all, tf.reduce_min, math.inf),
    "ReduceL1": lambda x, axes, keepdims: tf.reduce_sum(x if x.dtype.is_unsigned else tf.abs(x), axes, keepdims),
    "ReduceL2": lambda x, axes, keepdims: tf.sqrt(_as_float(tf.reduce_sum(tf.square(_as_float(x)), axes, keepdims))),
    "ReduceSumSquare": lambda x, axes, keepdims: tf.reduce_sum(x * x, axes, keepdims),
    "ReduceLogSum": lambda x, axes, keepdims: tf.math.log(tf.reduce_sum(_as_float(x), axes, keepdims)),
    "ReduceLogSumExp": lambda x, axes, keepdims: tf.reduce_logsumexp(_as_float(x), axes, keepdims),
}
_OF_ONE = {
    "ReduceL1": lambda x: x if x.dtype.is_unsigned else tf.abs(x), "ReduceL2": lambda x: x if x.dtype.is_unsigned else tf.abs(x),
    "ReduceSumSquare": lambda x: x * x, "ReduceLogSum": lambda x: tf.cast(tf.math.log(_as_float(x)), x.dtype),
}  # fmt: skip
"""The elementwise function that a reduction over no axes is; the identity for other operators."""


def _register(op):
    @rule(op)
    def reduce(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        axes = known(axes)
        if axes is None or axes == () if not isinstance(axes, tf.Tensor) else axes.shape[0] == 0:
            if noop_with_empty_axes:
                return tf.identity(_OF_ONE.get(op, tf.identity)(data))
            axes = None
        if isinstance(axes, tuple):
            axes = list(axes)
        return tf.cast(REDUCTIONS[op](data, axes, bool(keepdims)), data.dtype)

    return reduce


for _op in REDUCTIONS:
    _register(_op)


def _arg(function, data, axis, keepdims, select_last_index):
    if data.dtype == tf.bool:
        data = tf.cast(data, tf.int32)
    if select_last_index:
        found = tf.cast(size(data, axis), tf.int64) - 1 - function(tf.reverse(data, [axis]), axis)
    else:
        found = function(data, axis)
    return tf.expand_dims(found, axis) if keepdims else found


@rule("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(tf.argmax, data, axis, keepdims, select_last_index)


@rule("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(tf.argmin, data, axis, keepdims, select_last_index)


@rule("CumSum")
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    return tf.cumsum(x, tf.reshape(axis, []), bool(exclusive), bool(reverse))


@rule("CumProd")
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return tf.math.cumprod(x, tf.reshape(axis, []), bool(exclusive), bool(reverse))
