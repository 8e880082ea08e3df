"""Reductions, ArgMax, TopK, and cumulative sums and products."""

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast, is_float, like
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import numbers, select, size, squeezed, vector
from onnxbridge.rules import Ints


def _reduce(function, x, axes, keepdims, noop):
    if not axes:
        if noop:
            return x if function is not mb.reduce_l1_norm else mb.abs(x=x)
        axes = range(x.rank)
    if x.rank == 0:
        axes = [0]
        return mb.squeeze(x=function(x=mb.expand_dims(x=x, axes=[0]), axes=axes, keep_dims=True), axes=[0])
    return function(x=x, axes=list(axes), keep_dims=bool(keepdims))


@rule("ReduceSum")
def reduce_sum(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(mb.reduce_sum, data, axes, keepdims, noop_with_empty_axes)


@rule("ReduceMean")
def reduce_mean(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(mb.reduce_mean, data, axes, keepdims, noop_with_empty_axes)


@rule("ReduceProd")
def reduce_prod(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(mb.reduce_prod, data, axes, keepdims, noop_with_empty_axes)


@rule("ReduceMax")
def reduce_max(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce_bool(mb.reduce_max, data, axes, keepdims, noop_with_empty_axes)


@rule("ReduceMin")
def reduce_min(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce_bool(mb.reduce_min, data, axes, keepdims, noop_with_empty_axes)


def _reduce_bool(function, x, axes, keepdims, noop):
    dtype = x.dtype
    return cast(_reduce(function, cast(x, types.int32) if dtype == types.bool else x, axes, keepdims, noop), dtype)


@rule("ReduceL1")
def reduce_l1(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(mb.reduce_sum, mb.abs(x=data), axes, keepdims, noop_with_empty_axes)


@rule("ReduceSumSquare")
def reduce_sum_square(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    return _reduce(mb.reduce_sum, mb.square(x=data), axes, keepdims, noop_with_empty_axes)


@rule("ReduceL2")
def reduce_l2(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    x = data if is_float(data) else cast(data, types.fp32)
    return cast(mb.sqrt(x=reduce_sum_square(x, axes, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes)), data.dtype)


@rule("ReduceLogSum")
def reduce_log_sum(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    total = cast(_reduce(mb.reduce_sum, data, axes, keepdims, noop_with_empty_axes), data.dtype)
    return cast(mb.log(x=total if is_float(data) else cast(total, types.fp32), epsilon=0.0), data.dtype)


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    if not axes and noop_with_empty_axes:
        return data
    x = data if is_float(data) else cast(data, types.fp32)
    return cast(_reduce(mb.reduce_log_sum_exp, x, axes, keepdims, 0), data.dtype)


def _arg(function, data, axis, keepdims, last):
    x = data if not last else mb.reverse(x=data, axes=[axis % data.rank])
    index = function(x=x, axis=axis, keep_dims=bool(keepdims))
    if not last:
        return index
    n = size(data, axis)
    final = np.int32(n - 1) if isinstance(n, int) else mb.sub(x=n, y=np.int32(1))
    return mb.sub(x=final, y=index)


@rule("ArgMax")
def arg_max(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(mb.reduce_argmax, data, axis, keepdims, select_last_index)


@rule("ArgMin")
def arg_min(data, *, axis=0, keepdims=1, select_last_index=0):
    return _arg(mb.reduce_argmin, data, axis, keepdims, select_last_index)


@rule("TopK")
def top_k(X, K, *, axis=-1, largest=1, sorted=1):
    """If K is dynamic, all elements are sorted, and the first K are sliced."""
    count = K if isinstance(K, np.ndarray) else K.val  # sizes of a growing state are arrays
    if count is not None:
        return tuple(mb.topk(x=X, k=int(np.asarray(count).reshape(())), axis=axis, ascending=not largest))
    indices = mb.argsort(x=X, axis=axis, ascending=not largest)
    if np.ravel(K.sym_val)[0] != X.shape[axis]:
        is_full = [a != axis % X.rank for a in range(X.rank)]
        end = vector([np.int32(0) if keep else squeezed(K) if K.rank else K for keep in is_full])
        indices = mb.slice_by_index(x=indices, begin=[0] * X.rank, end=end, begin_mask=is_full, end_mask=is_full)
    return mb.gather_along_axis(x=X, indices=indices, axis=axis), indices


@rule("CumSum")
def cum_sum(x, axis, *, exclusive=0, reverse=0):
    """If the axis is dynamic, the sums along all axes are computed, and one is selected."""
    return _select_axis(x, axis, lambda a: mb.cumsum(x=x, axis=a, exclusive=bool(exclusive), reverse=bool(reverse)))


def _select_axis(x, axis, function):
    """Apply a function of an axis; for a dynamic axis compute all of them and select one."""
    if axis.val is not None:
        return function(int(np.asarray(axis.val).reshape(())) % x.rank)
    normalized = mb.reshape(x=axis, shape=[1])
    normalized = select(mb.less(x=normalized, y=np.int32(0)), mb.add(x=normalized, y=np.int32(x.rank)), normalized)
    result = function(0)
    for a in range(1, x.rank):
        result = select(mb.equal(x=normalized, y=np.int32(a)), function(a), result)
    return result


@rule("CumProd", limits="fixed sizes")
def cum_prod(x, axis, *, exclusive=0, reverse=0):
    return _select_axis(x, axis, lambda a: _cumulative_products(x, a, exclusive, reverse))


def _cumulative_products(x, axis, exclusive, reverse):
    """Parallel prefix product: the distance of the multiplied elements doubles in each step.

    Exclusive products are shifted last, since of a vector that begins with the ones of a shift MIL infers integers.
    """
    n = numbers(x)[axis]
    y = mb.reverse(x=x, axes=[axis]) if reverse else x
    distance = 1
    while distance < n:
        y = mb.mul(x=y, y=_shift(y, axis, distance))
        distance *= 2
    y = _shift(y, axis, 1) if exclusive else y
    return mb.reverse(x=y, axes=[axis]) if reverse else y


def _shift(x, axis, by):
    """Shift towards the end of an axis, filling with ones."""
    shape = list(numbers(x))
    end = [shape[axis] - by if a == axis else n for a, n in enumerate(shape)]
    shape[axis] = by
    if end[axis] == 0:
        return mb.const(val=like(x, np.ones(shape)))
    rest = mb.slice_by_index(x=x, begin=[0] * x.rank, end=end)
    return mb.concat(values=[like(x, np.ones(shape)), rest], axis=axis)
