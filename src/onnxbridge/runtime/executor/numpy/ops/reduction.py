"""Reductions, arg-reductions, cumulative sums and the largest k."""

from __future__ import annotations

import numpy as np

from onnxbridge.rules import Int, Ints
from onnxbridge.runtime.executor.numpy.dtypes import is_float, widened
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.ops.activation import log_softmax
from onnxbridge.runtime.executor.numpy.sums import mean, total


def reduction(op):
    """Register `f(data, axis=tuple, keepdims=bool)` as a reduction of the standard: its axes are an input and may be empty."""

    def register(f):
        def reduce(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
            if not axes:
                if noop_with_empty_axes:
                    return np.asarray(NOOP.get(op, lambda x: x)(data)).astype(data.dtype, copy=False)
                axes = range(data.ndim)
            axes = tuple(a % data.ndim for a in axes)
            result = f(data, axis=axes, keepdims=bool(keepdims))
            return np.asarray(result).astype(data.dtype, copy=False)

        rule(op)(widened(reduce))
        return f

    return register


# Without axes to reduce, the elementwise part of a composite reduction is still applied.
NOOP = {
    "ReduceL1": np.abs,
    "ReduceL2": np.abs,
    "ReduceLogSum": np.log,
    "ReduceSumSquare": np.square,
}


@reduction("ReduceSum")
def reduce_sum(x, **where):
    return total(x, **where)


@reduction("ReduceProd")
def reduce_prod(x, **where):
    return np.prod(x, dtype=x.dtype, **where)


@reduction("ReduceMean")
def reduce_mean(x, **where):
    return mean(x, **where)


@reduction("ReduceL1")
def reduce_l1(x, **where):
    return total(np.abs(x), **where)


@reduction("ReduceL2")
def reduce_l2(x, **where):
    squares = x if is_float(x.dtype) else x.astype(np.float64)
    return np.sqrt(total(squares * squares, **where))


@reduction("ReduceSumSquare")
def reduce_sum_square(x, **where):
    return total(x * x, **where)


@reduction("ReduceLogSum")
def reduce_log_sum(x, **where):
    return np.log(total(x, **where))


@reduction("ReduceLogSumExp")
def reduce_log_sum_exp(x, **where):
    x = x if is_float(x.dtype) else x.astype(np.float64)
    if x.size == 0:
        return np.log(total(x, **where))
    top = np.max(x, axis=where["axis"], keepdims=True)
    top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
    return np.log(total(np.exp(x - top), **where)) + (top if where["keepdims"] else np.squeeze(top, where["axis"]))


@reduction("ReduceMax")
def reduce_max(x, **where):
    return np.max(x, initial=None if x.size else _bounds(x.dtype)[0], **where)


@reduction("ReduceMin")
def reduce_min(x, **where):
    return np.min(x, initial=None if x.size else _bounds(x.dtype)[1], **where)


def _bounds(dtype):
    """The least and the greatest value of a type, which are the maximum and minimum of no elements."""
    if dtype.kind == "b":
        return False, True
    if is_float(dtype):
        return -np.inf, np.inf
    info = np.iinfo(dtype)
    return info.min, info.max


def _arg(pick, data, axis, keepdims, select_last_index):
    last = data.shape[axis] - 1
    found = last - pick(np.flip(data, axis), axis=axis) if select_last_index else pick(data, axis=axis)
    found = np.asarray(found, np.int64)
    return np.expand_dims(found, axis) if keepdims else found


@rule("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(np.argmax, data, axis, keepdims, select_last_index)


@rule("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(np.argmin, data, axis, keepdims, select_last_index)


_FEW = 8  # candidates are selected first if k is less than 1/_FEW of the axis


def _candidates(x, k, largest):
    """The indices of the k smallest in ascending order; None where that is not faster, or where ties are ambiguous."""
    n = x.shape[-1]
    if not 0 < k < n // _FEW or x.dtype.kind not in "fiu":
        return None
    found = np.argpartition(x, (n - k - 1, n - k) if largest else (k - 1, k), axis=-1)
    last, next_ = (found[..., n - k], found[..., n - k - 1]) if largest else (found[..., k - 1], found[..., k])
    ends = [np.take_along_axis(x, at[..., None], -1) for at in (last, next_)]
    if not np.all(ends[0] != ends[1]) or (x.dtype.kind == "f" and np.isnan(ends).any()):
        return None
    return np.sort(found[..., n - k :] if largest else found[..., :k], axis=-1)


@rule("TopK")
def top_k(X, K: Int, *, axis=-1, largest=1, sorted=1):
    """The k first in a stable order, so that equal elements are ordered by index."""
    x = np.moveaxis(X, axis, -1)
    if not 0 <= K <= x.shape[-1]:
        raise ValueError(f"K is {K}, and the axis has {x.shape[-1]} elements")
    some = _candidates(x, K, largest)
    few = x if some is None else np.take_along_axis(x, some, -1)
    # A stable descending order is the reverse of a stable ascending one of the reversed data; NaN counts as the largest.
    if largest:
        order = few.shape[-1] - 1 - np.flip(np.argsort(np.flip(few, -1), axis=-1, kind="stable"), -1)
    else:
        order = np.argsort(few, axis=-1, kind="stable")
    order = order[..., :K]
    if some is not None:
        order = np.take_along_axis(some, order, -1)
    values = np.take_along_axis(x, order, -1)
    return np.moveaxis(values, -1, axis), np.moveaxis(order.astype(np.int64), -1, axis)


def _cumulate(accumulate, start, x, axis, exclusive, reverse):
    if x.ndim == 0:
        return np.full_like(x, start) if exclusive else x
    if not -x.ndim <= axis < x.ndim:  # the least int32 means all axes to NumPy
        raise ValueError(f"axis {axis} of {x.ndim} dimensions")
    if reverse:
        x = np.flip(x, axis)
    y = accumulate(x, axis=axis, dtype=x.dtype)
    if exclusive:
        y = np.roll(y, 1, axis)
        np.moveaxis(y, axis, 0)[:1] = start
    return np.flip(y, axis) if reverse else y


@rule("CumSum")
@widened
def cum_sum(x, axis: Int, *, exclusive=0, reverse=0):
    return _cumulate(np.cumsum, 0, x, axis, exclusive, reverse)


@rule("CumProd")
@widened
def cum_prod(x, axis: Int, *, exclusive=0, reverse=0):
    return _cumulate(np.cumprod, 1, x, axis, exclusive, reverse)


def _loss(log_prob, target, weight, ignore_index, reduction):
    """The weighted negative log probability of each target class; the mean is weighted, without ignored targets."""
    target = target.astype(np.int64)
    counts = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    safe = np.where(counts, target, 0)
    picked = np.take_along_axis(log_prob, np.expand_dims(safe, 1), 1).squeeze(1)
    each = counts.astype(log_prob.dtype) if weight is None else np.where(counts, weight[safe], 0).astype(log_prob.dtype)
    loss = -picked * each
    if reduction == "none":
        return loss
    return np.sum(loss) / np.sum(each) if reduction == "mean" else np.sum(loss)


@rule("NegativeLogLikelihoodLoss")
@widened
def negative_log_likelihood_loss(input, target, weight=None, *, ignore_index=None, reduction="mean"):
    return _loss(input, target, weight, ignore_index, reduction)


@rule("SoftmaxCrossEntropyLoss")
@widened
def softmax_cross_entropy_loss(scores, labels, weights=None, *, ignore_index=None, reduction="mean"):
    log_prob = log_softmax(scores, axis=1)
    return _loss(log_prob, labels, weights, ignore_index, reduction), log_prob
