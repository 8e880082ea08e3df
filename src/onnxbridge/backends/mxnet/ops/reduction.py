"""Reductions over axes."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, fixed, is_float, rank, within
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Ints


def reduced(sym, op, x, axes, keepdims, noop):
    """An MXNet reduction over ONNX's axes: by default all, or none with noop_with_empty_axes."""
    if not axes and noop:
        return x
    if not rank(x):
        return x
    chosen = tuple(sorted(a % rank(x) for a in axes)) if axes else tuple(range(rank(x)))
    if 0 in x.shape:
        return _neutral(op, x, tuple(1 if i in chosen else d for i, d in enumerate(x.shape) if keepdims or i not in chosen))
    if len(chosen) == rank(x) and not keepdims and not sym.np_shape:  # a scalar has one dimension then
        y = sym.Reshape(sym.call(op, x, axis=chosen, keepdims=True), shape=(1,))
        y.shape = ()
        return y
    y = sym.call(op, x, axis=chosen, keepdims=bool(keepdims))
    y.shape = tuple(1 if i in chosen else d for i, d in enumerate(x.shape) if keepdims or i not in chosen)
    return y


def _neutral(op, x, shape):
    """The neutral element of the reduction."""
    if op not in ("_np_sum", "_np_prod", "_np_max", "_np_min") or not all(isinstance(d, int) for d in shape):
        raise Unsupported("a reduction over no elements")
    if op in ("_np_sum", "_np_prod"):
        return np.full(shape, op == "_np_prod", x.dtype)
    if x.dtype.kind == "b":
        return np.full(shape, op == "_np_min", x.dtype)
    ends = (-np.inf, np.inf) if is_float(x) else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    return np.full(shape, ends[op == "_np_min"], x.dtype)


def _reduction(op, before=None, after=None):
    def lower(sym, data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
        small = op in ("_np_max", "_np_min") and data.dtype.kind in "iub" and data.dtype.itemsize < 4
        small = small and 0 not in (data.shape or ())

        def compute(x):
            x = x if before is None else before(sym, x)
            y = reduced(sym, op, x, axes, keepdims, noop_with_empty_axes)
            return y if after is None else after(sym, y)

        return within(sym, compute, np.int32, data) if small else compute(data)

    return lower


def _square(sym, x):
    y = sym.square(x)
    y.shape = x.shape
    return y


def _abs(sym, x):
    y = sym.abs(x)
    y.shape = x.shape
    return y


def _sqrt(sym, x):
    return sym.sqrt(x) if is_float(x) else within(sym, sym.sqrt, np.float64, x)


def _log(sym, x):
    return sym.log(x) if is_float(x) else within(sym, sym.log, np.float64, x)


rule("ReduceSum")(_reduction("_np_sum"))
rule("ReduceProd")(_reduction("_np_prod"))
rule("ReduceMax")(_reduction("_np_max"))
rule("ReduceMin")(_reduction("_np_min"))
rule("ReduceL1")(_reduction("_np_sum", _abs))
rule("ReduceL2")(_reduction("_np_sum", _square, _sqrt))
rule("ReduceSumSquare")(_reduction("_np_sum", _square))
rule("ReduceLogSum")(_reduction("_np_sum", None, _log))


@rule("ReduceMean")
def reduce_mean(sym, data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    if is_float(data):
        return reduced(sym, "_npi_mean", data, axes, keepdims, noop_with_empty_axes)
    return within(sym, lambda x: reduced(sym, "_npi_mean", x, axes, keepdims, noop_with_empty_axes), np.float64, data)


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(sym, data, axes: Ints | None = None, *, keepdims=1, noop_with_empty_axes=0):
    """The maximum is subtracted first, so that exp does not overflow."""
    if not axes and noop_with_empty_axes:
        return data
    if not is_float(data):
        return within(sym, lambda x: reduce_log_sum_exp(sym, x, axes, keepdims=keepdims), np.float64, data)
    top = reduced(sym, "_np_max", data, axes, True, 0)
    gap = sym.exp(sym._npi_subtract(data, top))
    gap.shape = data.shape
    log = sym.log(reduced(sym, "_np_sum", gap, axes, keepdims, 0))
    return sym._npi_add(log, top if keepdims else reduced(sym, "_np_max", data, axes, False, 0))


def _extreme(op):
    def lower(sym, data, *, axis=0, keepdims=1, select_last_index=0):
        wide = data if data.dtype.itemsize >= 4 else cast(sym, data, np.float32)
        if not select_last_index:
            return sym.call(op, wide, axis=axis, keepdims=bool(keepdims))
        (size,) = fixed(data, [axis])
        found = sym.call(op, sym.reverse(wide, axis=(axis % rank(data),)), axis=axis, keepdims=bool(keepdims))
        return sym._rminus_scalar(found, scalar=size - 1)

    return lower


rule("ArgMax")(_extreme("_npi_argmax"))
rule("ArgMin")(_extreme("_npi_argmin"))
