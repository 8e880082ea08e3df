"""Reductions over axes, and running ones along an axis."""

from __future__ import annotations

import math

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import leaf, read


def _whole(x):
    return not x.dtype.is_floating_point and not x.dtype.is_complex


def _as_float(x):
    return x.to(torch.float64) if _whole(x) else x


def _kept(x):
    """What keeps the type of whole numbers, which PyTorch adds and multiplies as int64."""
    return {"dtype": x.dtype} if _whole(x) else {}


def _each(dims):
    """One number for one dimension, as people write it."""
    return dims[0] if len(dims) == 1 else dims


def _sum(x, dims, **keepdim):
    return torch.sum(x, _each(dims), **keepdim, **_kept(x))


def _prod(x, dims, **keepdim):
    for d in sorted((d % x.ndim for d in dims), reverse=True):
        x = torch.prod(x, d, **keepdim, **_kept(x))
    return x


def _mean(x, dims, **keepdim):
    if _whole(x):
        count = math.prod(x.shape[d] for d in dims)
        return torch.div(torch.sum(x, _each(dims), **keepdim), count, rounding_mode="trunc").to(x.dtype)
    return torch.mean(x, _each(dims), **keepdim)


@leaf
def largest(x, dims, keepdim=False):
    """The largest over sizes that are known when the module runs; of none, what is below all numbers."""
    if any(x.shape[d] == 0 for d in dims if isinstance(x.shape[d], int)):
        least = -math.inf if x.dtype.is_floating_point else 0 if x.dtype == torch.bool else torch.iinfo(x.dtype).min
        return torch.full_like(x.sum(dims, keepdim), least, dtype=x.dtype)
    return torch.amax(x, dims, keepdim)


@leaf
def smallest(x, dims, keepdim=False):
    """The least over sizes that are known when the module runs; of none, what is above all numbers."""
    if any(x.shape[d] == 0 for d in dims if isinstance(x.shape[d], int)):
        most = math.inf if x.dtype.is_floating_point else 1 if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        return torch.full_like(x.sum(dims, keepdim), most, dtype=x.dtype)
    return torch.amin(x, dims, keepdim)


def _extreme(function, careful):
    def reduce(x, dims, **keepdim):
        some = all(isinstance(x.shape[d], int) and x.shape[d] > 0 for d in dims)
        return (function if some else careful)(x, _each(dims) if some else dims, **keepdim)

    return reduce


REDUCTIONS = {
    "ReduceSum": _sum,
    "ReduceProd": _prod,
    "ReduceMean": _mean,
    "ReduceMax": _extreme(torch.amax, largest),
    "ReduceMin": _extreme(torch.amin, smallest),
    "ReduceL1": lambda x, dims, **keepdim: _sum(torch.abs(x), dims, **keepdim),
    "ReduceL2": lambda x, dims, **keepdim: torch.sqrt(_sum(_as_float(x * x), dims, **keepdim)),
    "ReduceSumSquare": lambda x, dims, **keepdim: _sum(x * x, dims, **keepdim),
    "ReduceLogSum": lambda x, dims, **keepdim: torch.log(_sum(_as_float(x), dims, **keepdim)),
    "ReduceLogSumExp": lambda x, dims, **keepdim: torch.logsumexp(_as_float(x), _each(dims), **keepdim),
}
_OF_ONE = {
    "ReduceL1": torch.abs, "ReduceL2": torch.abs, "ReduceSumSquare": torch.square,
    "ReduceLogSum": lambda x: torch.log(_as_float(x)).to(x.dtype),
}  # fmt: skip
"""What reducing over no axis does to each element; nothing where the operator is not named."""


def _reduce(data, axes, op, keepdims, noop_with_empty_axes):
    if not axes and (noop_with_empty_axes or not data.ndim):
        return _OF_ONE.get(op, torch.clone)(data)
    return REDUCTIONS[op](data, axes or tuple(range(data.ndim)), **({"keepdim": True} if keepdims else {})).to(data.dtype)


@leaf
def reduced(data, axes, op, keepdims, noop_with_empty_axes):
    """One of `REDUCTIONS`; `axes` are numbers, or a tensor that is read when the module runs."""
    return _reduce(data, tuple(read(axes)) if isinstance(axes, torch.Tensor) else axes, op, keepdims, noop_with_empty_axes)


def _register(op):
    @rule(op)
    def reduce(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        known = known_ints(axes)
        settled = data.is_known and (known is None or isinstance(known, tuple))
        return (_reduce if settled else reduced)(data, known, op, keepdims, noop_with_empty_axes)

    return reduce


for _op in REDUCTIONS:
    _register(_op)


def _arg(function, data, axis, keepdims, select_last_index):
    if data.dtype == torch.bool:
        data = data.to(torch.uint8)
    if not select_last_index:
        return function(data, axis, keepdim=bool(keepdims))
    return data.shape[axis] - 1 - function(torch.flip(data, [axis]), axis, keepdim=bool(keepdims))


@rule("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(torch.argmax, data, axis, keepdims, select_last_index)


@rule("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(torch.argmin, data, axis, keepdims, select_last_index)


@leaf
def running(x, axis, product, exclusive, reverse):
    """Running sums or products along an axis that may be known only when the module runs."""
    axis = int(axis) % x.ndim
    x = torch.flip(x, [axis]) if reverse else x
    if exclusive:
        first = torch.full_like(x.narrow(axis, 0, 1), 1 if product else 0)
        x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
    x = (torch.cumprod if product else torch.cumsum)(x, axis, dtype=x.dtype)
    return torch.flip(x, [axis]) if reverse else x


def _axis(axis):
    known = known_ints(axis)
    return known[0] if isinstance(known, tuple) else axis


@rule("CumSum")
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    return running(x, _axis(axis), False, exclusive, reverse)


@rule("CumProd")
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return running(x, _axis(axis), True, exclusive, reverse)
