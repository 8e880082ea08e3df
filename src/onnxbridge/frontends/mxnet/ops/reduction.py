"""Reductions over axes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.types import NARROW, as_tuple, named, scalar_shape
from onnxbridge.hub.ir.values import cast, rank


def reduced_axes(data, axis, exclude):
    """The axes to reduce over, by default all; with `exclude`, all but these. A scalar has none, whatever the axis."""
    everything = range(rank(data))
    chosen = {a % len(everything) for a in as_tuple(axis) if everything}
    if exclude:
        return [a for a in everything if a not in chosen]
    return sorted(chosen) or list(everything)


def reduce(op, onnx, data, axis, keepdims, exclude, np_shape):
    axes = reduced_axes(data, axis, exclude)
    if not axes:
        return op.Identity(data)
    wide = op.Cast(data, to=ir.DataType.INT32) if data.dtype in NARROW else data
    return scalar_shape(op, cast(op, op.call(onnx, wide, axes, keepdims=int(keepdims)), data.dtype), np_shape)


def _reduction(onnx):
    def lower(op, data, *, axis=None, keepdims=False, exclude=False, np_shape=False):
        return reduce(op, onnx, data, axis, keepdims, exclude, np_shape)

    return lower


rule("sum", "sum_axis")(_reduction("ReduceSum"))
rule("mean")(_reduction("ReduceMean"))
rule("prod")(_reduction("ReduceProd"))


def _largest(onnx):
    """The maximum or minimum, NaN where an element is: ONNX leaves open what ReduceMax and ReduceMin do with NaN."""

    def lower(op, data, *, axis=None, keepdims=False, exclude=False, np_shape=False):
        found = reduce(op, onnx, data, axis, keepdims, exclude, np_shape)
        if not data.dtype.is_floating_point():
            return found
        missing = op.Where(op.IsNaN(data), data, 0)
        return op.Add(found, reduce(op, "ReduceSum", missing, axis, keepdims, exclude, np_shape))

    return lower


rule("max", "max_axis")(_largest("ReduceMax"))
rule("min", "min_axis")(_largest("ReduceMin"))


@rule("nansum")
def nansum(op, data, *, axis=None, keepdims=False, exclude=False, np_shape=False):
    return reduce(op, "ReduceSum", _numbers(op, data, 0), axis, keepdims, exclude, np_shape)


@rule("nanprod")
def nanprod(op, data, *, axis=None, keepdims=False, exclude=False, np_shape=False):
    return reduce(op, "ReduceProd", _numbers(op, data, 1), axis, keepdims, exclude, np_shape)


def _numbers(op, data, instead):
    """NaN replaced by a value; integers are unchanged."""
    return op.Where(op.IsNaN(data), instead, data) if data.dtype.is_floating_point() else data


@rule("norm")
def norm(op, data, *, ord=2, axis=None, out_dtype=None, keepdims=False, np_shape=False):
    if ord not in (1, 2):
        raise Unsupported(f"ord={ord} is not supported")
    if out_dtype is not None:
        data = cast(op, data, named(out_dtype))
    if not data.dtype.is_floating_point():
        raise Unsupported("the norm of integers, which MXNet rounds at every step", hint="cast to float32 first")
    return reduce(op, "ReduceL1" if ord == 1 else "ReduceL2", data, axis, keepdims, False, np_shape)


def before_all(op, data, largest):
    """Replaces NaN by what is beyond all other elements, so that ArgMax or ArgMin finds the first one."""
    if not data.dtype.is_floating_point():
        return data
    last = float(data.dtype.max) if largest else float(data.dtype.min)
    others = op.Min(data, last) if largest else op.Max(data, last)
    return op.Where(op.IsNaN(data), np.inf if largest else -np.inf, others)


def _extreme(onnx):
    def lower(op, data, *, axis=None, keepdims=False, np_shape=False):
        dtype, data = data.dtype, before_all(op, data, onnx == "ArgMax")
        if axis is None:
            found = op.call(onnx, op.Reshape(data, [-1]), axis=0, keepdims=0)
            found = op.Reshape(found, [1] * rank(data)) if keepdims else found
        else:
            found = op.call(onnx, data, axis=axis, keepdims=int(keepdims))
        return scalar_shape(op, cast(op, found, dtype), np_shape)

    return lower


rule("argmax")(_extreme("ArgMax"))
rule("argmin")(_extreme("ArgMin"))


@rule("argmax_channel")
def argmax_channel(op, data):
    return cast(op, op.ArgMax(before_all(op, data, True), axis=1, keepdims=0), data.dtype)


@rule("moments")
def moments(op, data, *, axes=None, keepdims=False, np_shape=False):
    if data.dtype in NARROW:
        raise Unsupported("moments of integers of 16 bits or fewer, whose squares overflow", hint="cast to float32 first")
    mean = reduce(op, "ReduceMean", data, axes, True, False, np_shape)
    gap = op.Sub(data, mean)
    variance = reduce(op, "ReduceMean", op.Mul(gap, gap), axes, keepdims, False, np_shape)
    return reduce(op, "ReduceMean", data, axes, keepdims, False, np_shape), variance


@rule("_contrib_allclose")
def allclose(op, a, b, *, rtol=1e-5, atol=1e-8, equal_nan=True):
    if not a.dtype.is_floating_point():
        a, b = op.Cast(a, to=ir.DataType.DOUBLE), op.Cast(b, to=ir.DataType.DOUBLE)
    near = op.LessOrEqual(op.Abs(op.Sub(a, b)), op.Add(op.Mul(op.Abs(b), rtol), atol))
    near = op.Or(near, op.Equal(a, b))
    if equal_nan:
        near = op.Or(near, op.And(op.IsNaN(a), op.IsNaN(b)))
    return op.ReduceMin(op.Cast(near, to=ir.DataType.UINT8), keepdims=0)


# over all elements of several arrays


@rule("all_finite")
def all_finite(op, data, *, init_output=True):
    """1 if every element is finite, else 0."""
    return multi_all_finite(op, data)


@rule("multi_all_finite")
def multi_all_finite(op, *data, num_arrays=1, init_output=True):
    finite = [op.Not(op.Or(op.IsNaN(d), op.IsInf(d))) for d in data]
    flat = [op.Reshape(op.Cast(f, to=ir.DataType.FLOAT), [-1]) for f in finite]
    return op.ReduceMin(op.Concat(*flat, axis=0), keepdims=1)


@rule("multi_sum_sq")
def multi_sum_sq(op, *data, num_arrays):
    """The sum of squares of each array, in float32."""
    return op.Concat(*[op.Reshape(op.ReduceSumSquare(cast(op, d, ir.DataType.FLOAT), keepdims=0), [1]) for d in data], axis=0)
