"""Matrix factorizations, and linear systems solved with them."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.frontends.tensorflow.ops.diagonals import matrix_diag_v3
from onnxbridge.hub.decompositions.linalg import factorizations
from onnxbridge.hub.decompositions.linalg.factorizations import matrix_transpose
from onnxbridge.hub.ir.values import cast, mark_undetermined

SIGNS = "signs of the vectors are not TensorFlow's: they cannot be outputs of the model"


@rule("Cholesky")
def cholesky(op, input):
    return input if input.shape[-1] == 0 else factorizations.cholesky(op, input)[0]


def _turned(op, matrix, adjoint):
    return matrix_transpose(op, matrix) if adjoint else matrix


def _identity(op, a):
    return factorizations.identity(op, op.size(a, -1), a)


@rule("MatrixSolve")
def matrix_solve(op, matrix, rhs, *, adjoint=False):
    packed, _, order, _ = factorizations.lu(op, _turned(op, matrix, adjoint))
    return factorizations.solve_factored(op, packed, order, rhs)


@rule("MatrixInverse")
def matrix_inverse(op, input, *, adjoint=False):
    return input if input.shape[-1] == 0 else matrix_solve(op, input, _identity(op, input), adjoint=adjoint)


@rule("MatrixTriangularSolve")
def matrix_triangular_solve(op, matrix, rhs, *, lower=True, adjoint=False):
    return factorizations.solve_triangular(op, _turned(op, matrix, adjoint), rhs, upper=lower == adjoint)


@rule("BandedTriangularSolve")
def banded_triangular_solve(op, matrix, rhs, *, lower=True, adjoint=False):
    """The rows of `matrix` are the bands, with the diagonal first (lower) or last (upper)."""
    bands = matrix.shape[-2]
    if not isinstance(bands, int):
        raise Unsupported("a number of bands that is known only when the model runs")
    k = np.array([1 - bands, 0] if lower else [0, bands - 1])
    zero, size = (op.constant(np.array(v, t)) for v, t in ((0, matrix.dtype.numpy()), (-1, np.int64)))
    diagonals = matrix if bands > 1 else op.Squeeze(matrix, [-2])
    full = matrix_diag_v3(op, diagonals, op.constant(k), size, size, zero, align="LEFT_RIGHT")
    return matrix_triangular_solve(op, full, rhs, lower=lower, adjoint=adjoint)


@rule("MatrixDeterminant")
def matrix_determinant(op, input):
    """The product of the pivots, with the sign of the row swaps."""
    if input.shape[-1] == 0:
        return op.Expand(np.array(1, input.dtype.numpy()), op.Shape(input, end=-2))
    packed, swaps, _, _ = factorizations.lu(op, input)
    pivots = op.ReduceSum(op.Mul(packed, _identity(op, input)), [-1], keepdims=0)
    moved = op.Not(op.Equal(swaps, factorizations.arange(op, op.size(swaps, -1))))
    return op.ReduceProd(op.Where(moved, op.Neg(pivots), pivots), [-1], keepdims=0)


@rule("LogMatrixDeterminant")
def log_matrix_determinant(op, input):
    return factorizations.slogdet(op, input)[:2]


@rule("Qr")
def qr(op, input, *, full_matrices=False):
    return factorizations.qr(op, input, complete=full_matrices)


@rule("Svd", limits=SIGNS)
def svd(op, input, *, compute_uv=True, full_matrices=False):
    u, values, v = factorizations.svd(op, input, full=full_matrices, compute_uv=compute_uv)
    if not compute_uv:
        empty = op.constant(np.zeros(0, input.dtype.numpy()))
        return values, empty, empty
    return values, mark_undetermined(op, u), mark_undetermined(op, v)


@rule("SelfAdjointEigV2", limits=SIGNS)
def self_adjoint_eig_v2(op, input, *, compute_v=True):
    """Of the lower triangle."""
    lower, below = (op.Trilu(input, np.int64(k), upper=0) for k in (0, -1))
    values, vectors = factorizations.eigh(op, op.Add(lower, matrix_transpose(op, below)))
    return values, mark_undetermined(op, vectors) if compute_v else op.constant(np.zeros(0, input.dtype.numpy()))


@rule("Lu")
def lu(op, input, *, output_idx_type):
    packed, _, order, _ = factorizations.lu(op, input)
    return packed, cast(op, order, output_idx_type)


def _tridiagonal(op, above, main, below):
    """The matrices with these three diagonals, of which the last element above and the first below are not used."""
    bands = op.Concat(*(op.Unsqueeze(d, [-2]) for d in (above, main, below)), axis=-2)
    k, size, zero = (op.constant(v) for v in (np.array([-1, 1]), np.int64(-1), np.zeros((), main.dtype.numpy())))
    return matrix_diag_v3(op, bands, k, size, size, zero, align="LEFT_RIGHT")


@rule("TridiagonalSolve", limits="as dense matrices; without perturb_singular")
def tridiagonal_solve(op, diagonals, rhs, *, partial_pivoting=True, perturb_singular=False):
    if perturb_singular:
        raise Unsupported("perturb_singular=True")
    return matrix_solve(op, _tridiagonal(op, *(op.Gather(diagonals, np.int64(i), axis=-2) for i in range(3))), rhs)


@rule("TridiagonalMatMul")
def tridiagonal_mat_mul(op, superdiag, maindiag, subdiag, rhs):
    above, main, below = (op.Squeeze(d, [-2]) for d in (superdiag, maindiag, subdiag))
    return op.MatMul(_tridiagonal(op, above, main, below), rhs)


@rule("MatrixSolveLs")
def matrix_solve_ls(op, matrix, rhs, l2_regularizer, *, fast=True):
    """By the normal equations, of the smaller side."""
    rows, columns = list(matrix.shape)[-2:]
    if not fast or not isinstance(rows, int) or not isinstance(columns, int):
        raise Unsupported("least squares with fast=False, or of unknown sizes")
    a, t = matrix, matrix_transpose(op, matrix)
    square = op.MatMul(t, a) if rows >= columns else op.MatMul(a, t)
    square = op.Add(square, op.Mul(_identity(op, square), cast(op, l2_regularizer, matrix.dtype)))
    factor = factorizations.cholesky(op, square)[0]
    y = factorizations.solve_triangular(op, factor, op.MatMul(t, rhs) if rows >= columns else rhs, upper=False)
    y = factorizations.solve_triangular(op, matrix_transpose(op, factor), y, upper=True)
    return y if rows >= columns else op.MatMul(t, y)
