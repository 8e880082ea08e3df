"""Factorizations, and products of vectors."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.values import cast, rank, static_shape


@rule("_npi_qr")
def qr(op, A):
    return factorizations.qr(op, A)


def _rank_of(op, M, tolerance):
    """The number of singular values above the tolerance, which is computed from them."""
    values = factorizations.svd(op, M, full=False)[1]
    above = op.Greater(values, tolerance(values))
    return op.ReduceSum(op.Cast(above, to=np.int64), [-1], keepdims=0)


@rule("_npi_matrix_rank")
def matrix_rank(op, M, tol, *, hermitian=False):
    return _rank_of(op, M, lambda values: op.Unsqueeze(tol, [-1]))


@rule("_npi_matrix_rank_none_tol")
def matrix_rank_none_tol(op, M, *, finfoEps32=0.0, finfoEps64=0.0, hermitian=False):
    """The tolerance is the largest singular value times the larger size times the resolution of the dtype."""
    eps = finfoEps64 if M.dtype.name == "DOUBLE" else finfoEps32
    factor = op.constant(max(static_shape(M, [-2, -1])) * eps, dtype=M.dtype)
    return _rank_of(op, M, lambda values: op.Mul(op.ReduceMax(values, [-1], keepdims=1), factor))


@rule("_npi_cross")
def cross(op, a, b, *, axisa=-1, axisb=-1, axisc=-1):
    """The vector product; of two vectors in the plane, its third component."""
    sizes = [static_shape(x, [axis])[0] for x, axis in ((a, axisa), (b, axisb))]
    if not set(sizes) <= {2, 3}:
        raise Unsupported("vectors of other sizes than 2 and 3 have no vector product")

    def parts(x, axis, size):
        found = [op.Gather(x, np.int64(i), axis=axis % rank(x)) for i in range(size)]
        return [*found, *[op.Mul(found[0], 0) for _ in range(3 - size)]]

    (x1, x2, x3), (y1, y2, y3) = parts(a, axisa, sizes[0]), parts(b, axisb, sizes[1])

    def difference(p, q, r, s):
        return op.Sub(op.Mul(p, q), op.Mul(r, s))

    third = difference(x1, y2, x2, y1)
    if sizes == [2, 2]:
        return third
    found = [op.Unsqueeze(v, [-1]) for v in (difference(x2, y3, x3, y2), difference(x3, y1, x1, y3), third)]
    y = op.Concat(*found, axis=-1)
    last, axis = rank(y) - 1, axisc % rank(y)
    order = list(range(last))
    order.insert(axis, last)
    return y if axis == last else op.Transpose(y, perm=order)


@rule("_npi_kron")
def kron(op, a, b):
    """Every element of one times the other, side by side."""
    count = max(rank(a), rank(b))
    left, right = (static_shape(x) for x in (a, b))
    left, right = ([1] * (count - len(s)) + s for s in (left, right))
    wide = op.Reshape(a, [d for size in left for d in (size, 1)])
    product = op.Mul(wide, op.Reshape(b, [d for size in right for d in (1, size)]))
    return op.Reshape(product, [m * n for m, n in zip(left, right, strict=True)])


@rule("_npi_interp")
def interp(op, xp, fp, x=None, *, left=None, right=None, period=None, x_scalar=0.0, x_is_scalar=False):
    """Linear interpolation between the points (xp, fp), whose xp ascend."""
    if period is not None:
        raise Unsupported("a period is not supported", hint="reduce x to one period before")
    xp, fp = (cast(op, v, np.float64) for v in (xp, fp))
    x = op.constant(np.float64(x_scalar)) if x_is_scalar else cast(op, x, np.float64)
    (count,) = static_shape(xp)
    below = op.Cast(op.LessOrEqual(xp, op.Unsqueeze(x, [-1])), to=np.int64)
    index = op.Clip(op.Sub(op.ReduceSum(below, [-1], keepdims=0), 1), np.int64(0), np.int64(max(count - 2, 0)))
    following = op.Min(op.Add(index, 1), np.int64(count - 1))
    x0, x1, y0, y1 = (op.Gather(v, i) for v in (xp, fp) for i in (index, following))
    width = op.Sub(x1, x0)
    slope = op.Div(op.Sub(y1, y0), op.Where(op.Equal(width, 0.0), 1.0, width))
    y = op.Add(op.Mul(slope, op.Sub(x, x0)), y0)
    first, last = (op.Gather(v, np.int64(i)) for v, i in ((xp, 0), (xp, count - 1)))
    ends = [op.Gather(fp, np.int64(i)) if given is None else np.float64(given) for given, i in ((left, 0), (right, count - 1))]
    return op.Where(op.Less(x, first), ends[0], op.Where(op.Greater(x, last), ends[1], y))
