"""MXNet's `linalg` operators on triangles, factors, inverses and eigenvalues."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.linalg import inverse, scaled, transposed
from onnxbridge.frontends.mxnet.ops.shape import sizes
from onnxbridge.frontends.mxnet.ops.types import scalar_shape
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.values import static_shape


@rule("_linalg_potrf", "linalg_potrf")
def linalg_potrf(op, A, *, lower=True):
    """The Cholesky factor, computed from the same triangle of A."""
    return transposed(op, factorizations.cholesky(op, transposed(op, A, not lower))[0], not lower)


@rule("_linalg_potri", "linalg_potri")
def linalg_potri(op, A, *, lower=True):
    """The inverse of the matrix whose Cholesky factor is A."""
    unit = factorizations.identity(op, op.size(A, -1), A)
    half = factorizations.solve_triangular(op, transposed(op, A, not lower), op.Expand(unit, op.Shape(A)), upper=False)
    return op.MatMul(transposed(op, half), half)


@rule("_linalg_trsm", "linalg_trsm")
def linalg_trsm(op, A, B, *, transpose=False, rightside=False, lower=True, alpha=1.0):
    """Solves A X = alpha B, or X A = alpha B as its transpose."""
    triangle = transposed(op, A, transpose != rightside)
    upper = lower == (transpose != rightside)
    solved = factorizations.solve_triangular(op, triangle, transposed(op, scaled(op, B, alpha), rightside), upper=upper)
    return transposed(op, solved, rightside)


@rule("_linalg_inverse", "linalg_inverse")
def linalg_inverse(op, A):
    return inverse(op, A)


@rule("_linalg_slogdet", "linalg_slogdet")
def linalg_slogdet(op, A, *, np_shape=False):
    sign, log = factorizations.slogdet(op, A)[:2]
    return scalar_shape(op, sign, np_shape), scalar_shape(op, log, np_shape)


@rule("_linalg_gelqf", "linalg_gelqf")
def linalg_gelqf(op, A):
    """A = L Q, from the QR factorization of the transpose: Q and L."""
    q, r = factorizations.qr(op, transposed(op, A))
    return transposed(op, q), transposed(op, r)


@rule("_linalg_syevd")
def linalg_syevd(op, A):
    """A = transpose(U) diag(L) U. In each row of U the element of largest size is positive."""
    lower, below = (op.Trilu(A, op.constant(np.int64(k)), upper=0) for k in (0, -1))
    values, vectors = factorizations.eigh(op, op.Add(lower, transposed(op, below)))
    rows = transposed(op, vectors)
    return op.Mul(rows, largest_sign(op, rows)), values


def largest_sign(op, rows):
    """The sign of the element of largest size in each row, [..., 1]."""
    if 0 in rows.shape:
        return op.Slice(rows, [0], [1], [-1])
    largest = op.ArgMax(op.Abs(rows), axis=-1, keepdims=1)
    return op.Sign(op.GatherElements(rows, largest, axis=-1))


@rule("_linalg_maketrian", "linalg_maketrian")
def linalg_maketrian(op, A, *, offset=0, lower=True):
    """The triangle with these elements: a lower one by rows, an upper one by columns. A nonzero offset selects which."""
    (count,) = static_shape(A, [-1])
    is_lower = lower if offset == 0 else offset < 0
    size = abs(offset)
    while np.tri(size, k=-abs(offset)).sum() < count:
        size += 1
    inside = np.tri(size, k=-abs(offset), dtype=bool)
    order = np.zeros(size * size, np.int64)
    order[np.flatnonzero(inside)] = np.arange(count)
    flat = op.Where(op.constant(inside.reshape(-1)), op.Gather(A, order, axis=-1), 0)
    square = op.reshape(flat, [*sizes(op, A)[:-1], size, size])
    return square if is_lower else transposed(op, square)
