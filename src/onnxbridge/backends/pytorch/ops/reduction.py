"""Reductions over axes, and running ones along an axis."""

from __future__ import annotations

import math

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.recorder import leaf, read
from onnxbridge.backends.pytorch.sizes import known_ints


def _whole(x):
    return not x.dtype.is_floating_point and not x.dtype.is_complex


def _as_float(x):
    return x.to(torch.float64) if _whole(x) else x


def _sum(x, dims, keep):
    return torch.sum(x, dims, keepdim=keep, dtype=x.dtype)


def _prod(x, dims, keep):
    for d in sorted(dims, reverse=True):
        x = torch.prod(x, d, keepdim=keep, dtype=x.dtype)
    return x


def _mean(x, dims, keep):
    if _whole(x):
        count = math.prod(x.shape[d] for d in dims)
        return torch.div(torch.sum(x, dims, keepdim=keep), count, rounding_mode="trunc")
    return torch.mean(x, dims, keepdim=keep)


def _extreme(function, least):
    def reduce(x, dims, keep):
        if any(x.shape[d] == 0 for d in dims if isinstance(x.shape[d], int)):
            shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
            full = x.new_full(shape, least(x.dtype))
            return full if keep else full.squeeze(list(dims))
        return function(x, dims, keepdim=keep)

    return reduce


def _least(dtype):
    return False if dtype == torch.bool else -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _most(dtype):
    return True if dtype == torch.bool else math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


REDUCTIONS = {
    "ReduceSum": _sum,
    "ReduceProd": _prod,
    "ReduceMean": _mean,
    "ReduceMax": _extreme(torch.amax, _least),
    "ReduceMin": _extreme(torch.amin, _most),
    "ReduceL1": lambda x, dims, keep: _sum(torch.abs(x), dims, keep),
    "ReduceL2": lambda x, dims, keep: torch.sqrt(_sum(_as_float(x * x), dims, keep)),
    "ReduceSumSquare": lambda x, dims, keep: _sum(x * x, dims, keep),
    "ReduceLogSum": lambda x, dims, keep: torch.log(_sum(_as_float(x), dims, keep)),
    "ReduceLogSumExp": lambda x, dims, keep: torch.logsumexp(_as_float(x), dims, keepdim=keep),
}
_OF_ONE = {
    "ReduceL1": torch.abs, "ReduceL2": torch.abs, "ReduceSumSquare": torch.square,
    "ReduceLogSum": lambda x: torch.log(_as_float(x)).to(x.dtype),
}  # fmt: skip
"""What reducing over no axis does to each element; nothing where the operator is not named."""


@leaf
def reduced(data, axes, op, keepdims, noop_with_empty_axes):
    """One of `REDUCTIONS`; `axes` are numbers, or a tensor that is read when the module runs."""
    if isinstance(axes, torch.Tensor):
        axes = read(axes)
    if not axes and noop_with_empty_axes:
        return _OF_ONE.get(op, torch.clone)(data)
    dims = [a % data.ndim for a in axes] if axes else list(range(data.ndim))
    if not dims:
        return _OF_ONE.get(op, torch.clone)(data)
    return REDUCTIONS[op](data, dims, bool(keepdims)).to(data.dtype)


def _register(op):
    @rule(op)
    def reduce(data, axes=None, *, keepdims=1, noop_with_empty_axes=0):
        return reduced(data, known_ints(axes), op, keepdims, noop_with_empty_axes)

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
