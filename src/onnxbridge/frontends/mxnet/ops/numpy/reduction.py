"""Sums, extremes, means and norms over axes."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.reduction import reduced_axes
from onnxbridge.frontends.mxnet.ops.types import NARROW, as_tuple, named
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.values import cast, is_integer, like, rank

BOOL, FLOAT, DOUBLE, INT32, INT64 = (getattr(ir.DataType, n) for n in ("BOOL", "FLOAT", "DOUBLE", "INT32", "INT64"))


def _axes(a, axis):
    """The axes to reduce over, all for None; an empty tuple reduces nothing."""
    return [] if axis == () else reduced_axes(a, axis, False)


def reduce(op, onnx, a, axis, keepdims, mxnet_2=False):
    """Every reduction of no elements is 0 in MXNet 1."""
    axes = _axes(a, axis)
    if not axes:
        return op.Identity(a)
    wide = op.Cast(a, to=INT32) if a.dtype in NARROW else a
    if any(a.shape[i] == 0 for i in axes) and not mxnet_2:
        onnx = "ReduceSum"
    return like(op, op.call(onnx, wide, axes, keepdims=int(keepdims)), a)


def _total(onnx, combine):
    def lower(op, a, *, axis=None, dtype=None, keepdims=False, initial=None, mxnet_2=False):
        """Booleans are added as int64, and floats as floats, also where the result is an integer."""
        kind = named(dtype) if dtype is not None else INT64 if a.dtype == BOOL else a.dtype
        if kind.is_floating_point() or not a.dtype.is_floating_point():
            a = cast(op, a, kind)
        a = cast(op, reduce(op, onnx, a, axis, keepdims, mxnet_2), kind)
        if initial is None:
            return a
        start = op.constant(np.asarray(initial).astype(kind.numpy()))
        return op.call(combine, a, start)

    return lower


rule("_np_sum")(_total("ReduceSum", "Add"))
rule("_np_prod", "_np_product")(_total("ReduceProd", "Mul"))


def _extreme(onnx, combine):
    def lower(op, a, *, axis=None, keepdims=False, initial=None):
        found = reduce(op, onnx, a, axis, keepdims)
        return found if initial is None else op.call(combine, found, op.constant(np.asarray(initial).astype(a.dtype.numpy())))

    return lower


rule("_np_max", "_np_amax")(_extreme("ReduceMax", "Max"))
rule("_np_min", "_np_amin")(_extreme("ReduceMin", "Min"))


def _truth(onnx):
    def lower(op, data, *, axis=None, keepdims=False):
        truth = cast(op, data, BOOL)
        axes = _axes(data, axis)
        return op.Cast(op.call(onnx, op.Cast(truth, to=INT32), axes, keepdims=int(keepdims)), to=BOOL) if axes else truth

    return lower


rule("_np_any")(_truth("ReduceMax"))
rule("_np_all")(_truth("ReduceMin"))


@rule("_npi_mean")
def mean(op, a, *, axis=None, dtype=None, keepdims=False, initial=None):
    """The mean of integers is float32 unless a dtype is given."""
    kind = named(dtype) if dtype is not None else a.dtype if a.dtype.is_floating_point() else FLOAT
    wide = a if a.dtype.is_floating_point() else op.Cast(a, to=FLOAT)
    return cast(op, reduce(op, "ReduceMean", wide, axis, keepdims), kind)


def variance(op, a, axis, dtype, ddof, keepdims):
    """The variance in floating point, and the dtype of the result. Of integers MXNet truncates the mean."""
    if a.dtype in NARROW:
        raise Unsupported("the variance of integers of 16 bits or fewer, whose squares overflow", hint="cast to float32 first")
    kind = a.dtype if dtype is None else named(dtype)
    wide = a if a.dtype.is_floating_point() else op.Cast(a, to=DOUBLE)
    center = reduce(op, "ReduceMean", wide, axis, True)
    gap = op.Sub(wide, center if wide is a else op.Cast(op.Cast(center, to=INT64), to=DOUBLE))
    total = reduce(op, "ReduceSum", op.Mul(gap, gap), axis, keepdims)
    return op.Div(total, op.Sub(_count(op, a, axis, wide.dtype), float(ddof))), kind


def _count(op, a, axis, dtype):
    """The number of elements that are reduced to one."""
    sizes = [op.size(a, i) for i in _axes(a, axis)]
    if all(isinstance(s, int) for s in sizes):
        return op.constant(math.prod(sizes), dtype=dtype)
    return op.Cast(op.ReduceProd(op.dims(sizes), keepdims=0), to=dtype)


@rule("_npi_var")
def var(op, a, *, axis=None, dtype=None, ddof=0, keepdims=False):
    found, kind = variance(op, a, axis, dtype, ddof, keepdims)
    return cast(op, found, kind)


@rule("_npi_std")
def std(op, a, *, axis=None, dtype=None, ddof=0, keepdims=False):
    found, kind = variance(op, a, axis, dtype, ddof, keepdims)
    return cast(op, op.Sqrt(found), kind)


@rule("_npi_average")
def average(op, a, weights=None, *, axis=None, returned=False, weighted=True):
    """The weighted mean, and the sum of weights in its shape. Weights of one dimension belong to one axis."""
    wide = op.Cast(a, to=DOUBLE) if is_integer(a) else a
    if not weighted:
        found = reduce(op, "ReduceMean", wide, axis, False)
        return (like(op, found, a), op.Identity(_count(op, a, axis, a.dtype))) if returned else like(op, found, a)
    weights = like(op, weights, wide)
    if rank(weights) != rank(a):
        (only,) = _axes(a, axis)
        total = op.ReduceSum(weights, [0], keepdims=0)
        weights = op.Reshape(weights, [-1 if i == only else 1 for i in range(rank(a))])
        found = like(op, op.Div(op.ReduceSum(op.Mul(wide, weights), [only], keepdims=0), total), a)
        return (found, like(op, total, a)) if returned else found
    total = reduce(op, "ReduceSum", weights, axis, False)
    found = like(op, op.Div(reduce(op, "ReduceSum", op.Mul(wide, weights), axis, False), total), a)
    return (found, like(op, total, a)) if returned else found


def _arg_extreme(onnx):
    def lower(op, data, *, axis=None, keepdims=False):
        if axis is not None and rank(data):  # of a scalar the axis is 0 or -1
            return op.call(onnx, data, axis=axis, keepdims=int(keepdims))
        found = op.call(onnx, op.Reshape(data, [-1]), axis=0, keepdims=0)
        return op.Reshape(found, [1] * rank(data)) if keepdims else found

    return lower


rule("_npi_argmax")(_arg_extreme("ArgMax"))
rule("_npi_argmin")(_arg_extreme("ArgMin"))


@rule("_np_trace")
def trace(op, data, *, offset=0, axis1=0, axis2=1):
    from onnxbridge.frontends.mxnet.ops.numpy.shape import diagonal

    return reduce(op, "ReduceSum", diagonal(op, data, offset=offset, axis1=axis1, axis2=axis2), -1, False)


@rule("_npi_norm")
def norm(op, data, *, ord=2.0, axis=None, keepdims=False, flag=-1):
    """`flag` says which: -2 of all elements, -1 of vectors, 0 the largest or smallest singular value, 1 Frobenius, 2 nuclear."""
    wide = data if data.dtype.is_floating_point() else op.Cast(data, to=DOUBLE)
    if flag in (0, 2):
        return like(op, _spectral_norm(op, wide, ord, [a % rank(data) for a in as_tuple(axis)], keepdims, flag), data)
    if flag in (-2, 1) or ord == 2:
        return like(op, reduce(op, "ReduceL2", wide, axis, keepdims), data)
    if ord == 1:
        return like(op, reduce(op, "ReduceL1", wide, axis, keepdims), data)
    if ord == 0:
        present = op.Cast(op.Not(op.Equal(wide, 0)), to=wide.dtype)
        return like(op, reduce(op, "ReduceSum", present, axis, keepdims), data)
    if math.isinf(ord):
        return like(op, reduce(op, "ReduceMax" if ord > 0 else "ReduceMin", op.Abs(wide), axis, keepdims), data)
    powers = op.Pow(op.Abs(wide), op.constant(float(ord), dtype=wide.dtype))
    total = reduce(op, "ReduceSum", powers, axis, keepdims)
    return like(op, op.Pow(total, op.constant(1 / ord, dtype=wide.dtype)), data)


def _spectral_norm(op, data, ord, axes, keepdims, flag):
    if len(axes) != 2:
        raise Unsupported(f"axis={axes} of a matrix norm")
    rest = [i for i in range(rank(data)) if i not in axes]
    matrices = op.Transpose(data, perm=[*rest, *axes])
    _, values, _ = factorizations.svd(op, matrices, full=False, compute_uv=False)
    onnx = "ReduceSum" if flag == 2 else "ReduceMax" if ord > 0 else "ReduceMin"
    found = op.call(onnx, values, [-1], keepdims=0)
    return op.Unsqueeze(found, sorted(axes)) if keepdims else found
