"""Reductions in simpler ones, and running sums and products."""

from __future__ import annotations

from onnxbridge.hub.expand import expand
from onnxbridge.hub.expand.axis import along
from onnxbridge.hub.expand.running import running
from onnxbridge.hub.values import rank


@expand("CumSum")
def cum_sum(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, rank(x), lambda a: running(op, op.Add, x, a, 0, exclusive, reverse))


@expand("CumProd")
def cum_prod(op, x, axis, *, exclusive=0, reverse=0):
    return along(op, axis, rank(x), lambda a: running(op, op.Mul, x, a, 1, exclusive, reverse))


@expand("ReduceMean")
def reduce_mean(op, data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
    total = op.ReduceSum(data, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)
    return op.Div(total, op.Cast(op.Div(op.Size(data), op.Size(total)), to=data.dtype))
