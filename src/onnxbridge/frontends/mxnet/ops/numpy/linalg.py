"""Matrix products, and `mx.np.linalg`."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.factorization import largest_sign
from onnxbridge.frontends.mxnet.ops.linalg import inverse
from onnxbridge.frontends.mxnet.ops.shape import product, sizes, transposed_to
from onnxbridge.frontends.mxnet.ops.types import as_tuple
from onnxbridge.hub.decompositions.linalg import einsum as einsums
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.linalg.factorizations import matrix_transpose
from onnxbridge.hub.ir.values import rank, static_shape


@rule("_npi_matmul")
def matmul(op, a, b):
    return op.MatMul(a, b)


@rule("_np_dot")
def dot(op, a, b):
    """The sum over the last axis of one and the last but one of the other; a product if one is a scalar."""
    if not rank(a) or not rank(b):
        return op.Mul(a, b)
    if rank(b) == 1 or rank(a) <= 2 >= rank(b):
        return op.MatMul(a, b)
    return contract(op, a, b, [rank(a) - 1], [rank(b) - 2])


def contract(op, a, b, axes_a, axes_b):
    """The sum of products over pairs of axes, with the other axes of the first operand before those of the second."""
    axes_a, axes_b = [i % rank(a) for i in axes_a], [i % rank(b) for i in axes_b]
    rest_a, rest_b = ([i for i in range(rank(x)) if i not in axes] for x, axes in ((a, axes_a), (b, axes_b)))
    dims_a, dims_b = sizes(op, a), sizes(op, b)
    if not axes_a:
        left = op.Unsqueeze(a, list(range(rank(a), rank(a) + rank(b)))) if rank(b) else a
        return op.Mul(left, b)
    shared = product(op, [dims_a[i] for i in axes_a])
    left = op.reshape(transposed_to(op, a, [*rest_a, *axes_a]), [product(op, [dims_a[i] for i in rest_a]), shared])
    right = op.reshape(transposed_to(op, b, [*axes_b, *rest_b]), [shared, product(op, [dims_b[i] for i in rest_b])])
    return op.reshape(op.MatMul(left, right), [dims_a[i] for i in rest_a] + [dims_b[i] for i in rest_b])


@rule("_npi_tensordot")
def tensordot(op, a, b, *, a_axes_summed, b_axes_summed):
    return contract(op, a, b, as_tuple(a_axes_summed), as_tuple(b_axes_summed))


@rule("_npi_tensordot_int_axes")
def tensordot_int_axes(op, a, b, *, axes):
    return contract(op, a, b, list(range(rank(a) - axes, rank(a))), list(range(axes)))


@rule("_npi_einsum")
def einsum(op, *operands, subscripts, optimize=0):
    return einsums.einsum(op, operands, subscripts)


@rule("_npi_det")
def det(op, A):
    return op.Det(A)


@rule("_npi_cholesky")
def cholesky(op, A):
    return factorizations.cholesky(op, A)[0]


def _floats(op, *matrices):
    """Integers as float64, as MXNet solves their equations."""
    return [m if m.dtype.is_floating_point() else op.Cast(m, to=ir.DataType.DOUBLE) for m in matrices]


@rule("_npi_solve")
def solve(op, A, B):
    A, B = _floats(op, A, B)
    packed, _, order, _ = factorizations.lu(op, A)
    if rank(B) == rank(A) - 1:  # a vector
        return op.Squeeze(factorizations.solve_factored(op, packed, order, op.Unsqueeze(B, [-1])), [-1])
    return factorizations.solve_factored(op, packed, order, B)


@rule("_npi_tensorinv")
def tensorinv(op, a, *, ind=2):
    """The inverse of the array as a matrix whose rows are its first `ind` axes."""
    dims = static_shape(a)
    rows = math.prod(dims[:ind])
    return op.Reshape(inverse(op, op.Reshape(a, [rows, rows])), dims[ind:] + dims[:ind])


@rule("_npi_tensorsolve")
def tensorsolve(op, a, b, *, a_axes=None):
    """The x for which a, summed over all its last axes with x, is b; `a_axes` are moved to the end first."""
    moved = [i % rank(a) for i in as_tuple(a_axes)]
    a = transposed_to(op, a, [i for i in range(rank(a)) if i not in moved] + moved)
    rows = math.prod(static_shape(b))
    rest = static_shape(a)[rank(b) - rank(a) :]  # all of them if the ranks are equal
    return op.Reshape(solve(op, op.Reshape(a, [rows, rows]), op.Reshape(b, [rows])), rest)


@rule("_npi_svd")
def svd(op, A):
    """A = ut @ diag(l) @ v, for matrices with no more rows than columns; in each row of v the largest element is positive."""
    u, values, v = factorizations.svd(op, A, full=False)
    sign = largest_sign(op, matrix_transpose(op, v))
    return op.Mul(u, matrix_transpose(op, sign)), values, op.Mul(matrix_transpose(op, v), sign)


def _symmetric(op, A, UPLO):
    """The symmetric matrix of one triangle."""
    upper = int(UPLO == "U")
    half, rest = (op.Trilu(A, op.constant(np.int64(k)), upper=upper) for k in (0, 1 if upper else -1))
    return op.Add(half, matrix_transpose(op, rest))


@rule("_npi_eigh")
def eigh(op, A, *, UPLO="L"):
    """In each eigenvector, a column, the element of largest size is positive."""
    values, vectors = factorizations.eigh(op, _symmetric(op, *_floats(op, A), UPLO))
    return values, op.Mul(vectors, matrix_transpose(op, largest_sign(op, matrix_transpose(op, vectors))))


@rule("_npi_eigvalsh")
def eigvalsh(op, A, *, UPLO="L"):
    return factorizations.eigh(op, _symmetric(op, *_floats(op, A), UPLO))[0]


def _pinv(op, A, rcond, hermitian):
    """Singular values of at most `rcond` times the largest count as 0."""
    A = _symmetric(op, A, "L") if hermitian else A
    u, values, v = factorizations.svd(op, A, full=False)
    cutoff = op.Mul(op.ReduceMax(values, [-1], keepdims=1), rcond)
    kept = op.Greater(values, cutoff)
    scale = op.Where(kept, op.Reciprocal(op.Where(kept, values, 1.0)), 0.0)
    return op.MatMul(op.Mul(v, op.Unsqueeze(scale, [-2])), matrix_transpose(op, u))


@rule("_npi_pinv")
def pinv(op, A, rcond, *, hermitian=False):
    return _pinv(op, A, op.Unsqueeze(rcond, [-1]), hermitian)


@rule("_npi_pinv_scalar_rcond")
def pinv_scalar_rcond(op, A, *, rcond=1e-15, hermitian=False):
    return _pinv(op, A, op.constant(rcond, dtype=A.dtype), hermitian)
