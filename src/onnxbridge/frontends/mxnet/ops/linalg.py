"""Matrix products, and MXNet's `linalg` operators."""

from __future__ import annotations

import numpy as np

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.shape import diag, moved_axes, product, sizes, transposed_to
from onnxbridge.frontends.mxnet.ops.types import scalar_shape
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.ir.values import rank, static_shape


def inverse(op, a):
    """The inverses of square matrices, by LU factorization."""
    packed, _, order, _ = factorizations.lu(op, a)
    unit = factorizations.identity(op, op.size(a, -1), a)
    return factorizations.solve_factored(op, packed, order, op.Expand(unit, op.Shape(a)))


def transposed(op, x, yes=True):
    """Swap the last two dimensions."""
    count = rank(x)
    return op.Transpose(x, perm=[*range(count - 2), count - 1, count - 2]) if yes else x


def scaled(op, x, alpha):
    return x if alpha == 1 else op.Mul(x, alpha)


@rule("dot")
def dot(op, lhs, rhs, *, transpose_a=False, transpose_b=False, forward_stype=None, np_shape=False):
    """Contracts the last dimension of one with the first of the other; if transposed, the first with the last."""
    if rank(lhs) == rank(rhs) == 2:
        return op.MatMul(transposed(op, lhs, transpose_a), transposed(op, rhs, transpose_b))
    if rank(lhs) == rank(rhs) == 1:
        return scalar_shape(op, op.MatMul(lhs, rhs), np_shape)
    left, right = sizes(op, lhs), sizes(op, rhs)
    outer = (left[1:] if transpose_a else left[:-1]) + (right[:-1] if transpose_b else right[1:])
    a = _matrix(op, lhs, left, first=transpose_a)
    b = _matrix(op, rhs, right, first=not transpose_b)
    return op.reshape(op.MatMul(transposed(op, a, transpose_a), transposed(op, b, transpose_b)), outer)


def _matrix(op, x, dims, first):
    """`x` as a matrix whose first (or last) dimension is that of `x`."""
    return op.reshape(x, [dims[0], product(op, dims[1:])] if first else [product(op, dims[:-1]), dims[-1]])


@rule("batch_dot", "_npx_batch_dot")
def batch_dot(op, lhs, rhs, *, transpose_a=False, transpose_b=False, forward_stype=None):
    return op.MatMul(transposed(op, lhs, transpose_a), transposed(op, rhs, transpose_b))


@rule("khatri_rao")
def khatri_rao(op, *args):
    """The Khatri-Rao product: Kronecker products of columns."""
    total = args[0]
    for item in args[1:]:
        pairs = op.Mul(op.Unsqueeze(total, [1]), op.Unsqueeze(item, [0]))
        total = op.Reshape(pairs, [-1, *static_shape(item, [1])])
    return op.Identity(total) if len(args) == 1 else total


def _moved(op, x, source, destination):
    """`x` with one axis moved."""
    return transposed_to(op, x, moved_axes(rank(x), [source], [destination]))


@rule("_linalg_gemm", "linalg_gemm")
def linalg_gemm(op, A, B, C, *, transpose_a=False, transpose_b=False, alpha=1.0, beta=1.0, axis=-2):
    A, B, C = (_moved(op, x, axis, -2) for x in (A, B, C))
    found = scaled(op, batch_dot(op, A, B, transpose_a=transpose_a, transpose_b=transpose_b), alpha)
    return _moved(op, op.Add(found, scaled(op, C, beta)), -2, axis)


@rule("_linalg_gemm2", "linalg_gemm2")
def linalg_gemm2(op, A, B, *, transpose_a=False, transpose_b=False, alpha=1.0, axis=-2):
    A, B = (_moved(op, x, axis, -2) for x in (A, B))
    return _moved(op, scaled(op, batch_dot(op, A, B, transpose_a=transpose_a, transpose_b=transpose_b), alpha), -2, axis)


@rule("_linalg_syrk", "linalg_syrk")
def linalg_syrk(op, A, *, transpose=False, alpha=1.0):
    return scaled(op, batch_dot(op, A, A, transpose_a=transpose, transpose_b=not transpose), alpha)


@rule("_linalg_trmm", "linalg_trmm")
def linalg_trmm(op, A, B, *, transpose=False, rightside=False, lower=True, alpha=1.0):
    triangle = transposed(op, op.Trilu(A, upper=int(not lower)), transpose)
    return scaled(op, op.MatMul(B, triangle) if rightside else op.MatMul(triangle, B), alpha)


@rule("_linalg_det", "linalg_det")
def linalg_det(op, A, *, np_shape=False):
    return scalar_shape(op, op.Det(A), np_shape)


@rule("_linalg_extractdiag", "linalg_extractdiag")
def linalg_extractdiag(op, A, *, offset=0):
    return diag(op, A, k=offset, axis1=-2, axis2=-1)


@rule("_linalg_makediag", "linalg_makediag")
def linalg_makediag(op, A, *, offset=0):
    (count,) = static_shape(A, [-1])
    size, zeros = count + abs(offset), [0] * (rank(A) - 1)
    rows = op.Unsqueeze(op.Pad(A, [*zeros, max(-offset, 0), *zeros, max(offset, 0)]), [-1])
    return op.Where(op.constant(np.eye(size, k=offset, dtype=bool)), rows, 0)


@rule("_linalg_extracttrian", "linalg_extracttrian")
def linalg_extracttrian(op, A, *, offset=0, lower=True):
    """A lower triangle by rows, an upper one by columns. A nonzero offset selects which."""
    (size,) = static_shape(A, [-1])
    if not (lower if offset == 0 else offset < 0):
        A, offset = transposed(op, A), -offset
    flat = op.reshape(A, [*sizes(op, A)[:-2], size * size])
    return op.Gather(flat, np.flatnonzero(np.tri(size, k=offset, dtype=bool)), axis=-1)


@rule("_linalg_sumlogdiag", "linalg_sumlogdiag")
def linalg_sumlogdiag(op, A, *, np_shape=False):
    logs = op.Log(linalg_extractdiag(op, A))
    return scalar_shape(op, op.ReduceSum(logs, [-1], keepdims=0), np_shape)
