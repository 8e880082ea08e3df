"""ReduceMean, CumSum and CumProd in simpler operators."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.decompositions.standard.cumulative import running
from onnxbridge.hub.decompositions.standard.dynamic_axis import along
from onnxbridge.hub.ir.values import rank


@decompose("CumSum")
def cum_sum(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, rank(x), lambda a: running(op, op.Add, x, a, 0, exclusive, reverse))


@decompose("CumProd")
def cum_prod(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, rank(x), lambda a: running(op, op.Mul, x, a, 1, exclusive, reverse))


@decompose("ReduceMean")
def reduce_mean(op, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    total = op.ReduceSum(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    shapes = [data.shape, total.shape]
    if all(s is not None and all(isinstance(d, int) for d in s) for s in shapes):
        size, output_size = (math.prod(s) for s in shapes)
        count = op.constant(size // max(output_size, 1), dtype=data.dtype)
    else:
        count = op.Cast(op.Div(op.Size(data), op.Max(op.Size(total), np.int64(1))), to=data.dtype)
    return op.Div(total, count)
