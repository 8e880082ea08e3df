"""Reductions over axes, and cumulative sums and products."""

from __future__ import annotations

import math

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import opaque_call, read_ints


def _is_integer(x):
    return not x.dtype.is_floating_point and not x.dtype.is_complex


def _as_float(x):
    return x.to(torch.float64) if _is_integer(x) else x


def _keep_dtype(x):
    """Keyword arguments that keep an integer dtype, since PyTorch sums and multiplies integers as int64."""
    return {"dtype": x.dtype} if _is_integer(x) else {}


def _one_or_all(dims):
    """A single dimension as an int, as people write it."""
    return dims[0] if len(dims) == 1 else dims


def _sum(x, dims, **keepdim):
    return torch.sum(x, _one_or_all(dims), **keepdim, **_keep_dtype(x))


def _prod(x, dims, **keepdim):
    for d in sorted((d % x.ndim for d in dims), reverse=True):
        x = torch.prod(x, d, **keepdim, **_keep_dtype(x))
    return x


def _mean(x, dims, **keepdim):
    if _is_integer(x):
        count = math.prod(x.shape[d] for d in dims)
        return torch.div(torch.sum(x, _one_or_all(dims), **keepdim), count, rounding_mode="trunc").to(x.dtype)
    return torch.mean(x, _one_or_all(dims), **keepdim)


@opaque_call
def largest(x, dims, keepdim=False):
    """The maximum over sizes known at run time; of no elements, the lowest value."""
    if any(x.shape[d] == 0 for d in dims if isinstance(x.shape[d], int)):
        lowest = -math.inf if x.dtype.is_floating_point else 0 if x.dtype == torch.bool else torch.iinfo(x.dtype).min
        return torch.full_like(x.sum(dims, keepdim), lowest, dtype=x.dtype)
    return torch.amax(x, dims, keepdim)


@opaque_call
def smallest(x, dims, keepdim=False):
    """The minimum over sizes known at run time; of no elements, the highest value."""
    if any(x.shape[d] == 0 for d in dims if isinstance(x.shape[d], int)):
        highest = math.inf if x.dtype.is_floating_point else 1 if x.dtype == torch.bool else torch.iinfo(x.dtype).max
        return torch.full_like(x.sum(dims, keepdim), highest, dtype=x.dtype)
    return torch.amin(x, dims, keepdim)


def _extreme(function, run_time_function):
    def reduce(x, dims, **keepdim):
        nonempty = all(isinstance(x.shape[d], int) and x.shape[d] > 0 for d in dims)
        return (function if nonempty else run_time_function)(x, _one_or_all(dims) if nonempty else dims, **keepdim)

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
    "ReduceLogSumExp": lambda x, dims, **keepdim: torch.logsumexp(_as_float(x), _one_or_all(dims), **keepdim),
}
_WITHOUT_AXES = {
    "ReduceL1": torch.abs, "ReduceL2": torch.abs, "ReduceSumSquare": torch.square,
    "ReduceLogSum": lambda x: torch.log(_as_float(x)).to(x.dtype),
}  # fmt: skip
"""The elementwise function that a reduction over no axes is; the identity for other operators."""


def _reduce(data, axes, op, keepdims, noop_with_empty_axes):
    if not axes and (noop_with_empty_axes or not data.ndim):
        return _WITHOUT_AXES.get(op, torch.clone)(data)
    return REDUCTIONS[op](data, axes or tuple(range(data.ndim)), **({"keepdim": True} if keepdims else {})).to(data.dtype)


@opaque_call
def reduced(data, axes, op, keepdims, noop_with_empty_axes):
    """One of `REDUCTIONS`; `axes` is a tuple, or a tensor that is read at run time."""
    return _reduce(data, tuple(read_ints(axes)) if isinstance(axes, torch.Tensor) else axes, op, keepdims, noop_with_empty_axes)


def _register(op):
    @rule(op)
    def reduce(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        known = known_ints(axes)
        is_static = data.is_known and (known is None or isinstance(known, tuple))
        return (_reduce if is_static else reduced)(data, known, op, keepdims, noop_with_empty_axes)

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


@opaque_call
def cumulative(x, axis, product, exclusive, reverse):
    """Cumulative sums or products along an axis that may be known only at run time."""
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
    return cumulative(x, _axis(axis), False, exclusive, reverse)


@rule("CumProd")
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return cumulative(x, _axis(axis), True, exclusive, reverse)
