"""Matrix factorizations, and linear systems solved with them."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.creation import fill
from onnxbridge.frontends.pytorch.ops.shape import sizes
from onnxbridge.hub.decompositions.linalg import factorizations, ldl
from onnxbridge.hub.decompositions.linalg.factorizations import matrix_transpose
from onnxbridge.hub.ir.values import mark_undetermined

D = ir.DataType


def _per_matrix(op, a, value, dtype):
    """A constant for each matrix in a batch of empty matrices."""
    return fill(op, sizes(op, a)[:-2], value, dtype)


def _transpose_if(op, x, transpose):
    return matrix_transpose(op, x) if transpose else x


@rule("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(op, self, *, upper=False, check_errors=False):
    if self.shape[-1] == 0:
        return self, _per_matrix(op, self, 0, D.INT32)
    factor, info = factorizations.cholesky(op, _transpose_if(op, self, upper))
    return _transpose_if(op, factor, upper), info


@rule("aten::cholesky")
def cholesky(op, self, upper=False):
    return linalg_cholesky_ex(op, self, upper=upper)[0]


@rule("aten::cholesky_solve")
def cholesky_solve(op, self, input2, upper=False):
    factor = _transpose_if(op, input2, upper)
    y = factorizations.solve_triangular(op, factor, self, upper=False)
    return factorizations.solve_triangular(op, matrix_transpose(op, factor), y, upper=True)


@rule("aten::cholesky_inverse")
def cholesky_inverse(op, self, upper=False):
    return cholesky_solve(op, factorizations.identity(op, op.size(self, -1), self), self, upper)


@rule("aten::linalg_solve_triangular")
def linalg_solve_triangular(op, self, B, *, upper, left=True, unitriangular=False):
    if left:
        return factorizations.solve_triangular(op, self, B, upper=upper, unit=unitriangular)
    a, b = matrix_transpose(op, self), matrix_transpose(op, B)
    x = factorizations.solve_triangular(op, a, b, upper=not upper, unit=unitriangular)
    return matrix_transpose(op, x)


@rule("aten::triangular_solve")
def triangular_solve(op, self, A, upper=True, transpose=False, unitriangular=False):
    x = factorizations.solve_triangular(op, _transpose_if(op, A, transpose), self, upper=upper != transpose, unit=unitriangular)
    return x, A


def _lapack_pivots(op, swaps):
    """Row swaps with LAPACK's indices, which start at 1."""
    return op.Cast(op.Add(swaps, 1), to=D.INT32)


@rule("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(op, A, *, pivot=True, check_errors=False):
    if 0 in A.shape[-2:]:
        return A, fill(op, [*sizes(op, A)[:-2], 0], 0, D.INT32), _per_matrix(op, A, 0, D.INT32)
    packed, swaps, _, info = factorizations.lu(op, A, pivot=pivot)
    return packed, _lapack_pivots(op, swaps), info


@rule("aten::_lu_with_info")
def lu_with_info(op, self, pivot=True, check_errors=True):
    return linalg_lu_factor_ex(op, self, pivot=pivot)


def _parts(op, packed):
    """The unit lower factor, and the upper factor."""
    m, n = op.size(packed, -2), op.size(packed, -1)
    small = op.dims([min(m, n) if isinstance(m, int) and isinstance(n, int) else op.Min(m, n)])
    low = op.Slice(packed, [0], small, [-1])
    ones = op.Equal(factorizations.as_columns(op, factorizations.arange(op, m)), factorizations.arange(op, op.size(low, -1)))
    low = op.Where(ones, 1.0, op.Trilu(low, np.int64(-1), upper=0))
    return low, op.Trilu(op.Slice(packed, [0], small, [-2]), np.int64(0), upper=1)


def _permutation(op, order, like):
    """The permutation matrix that restores the row order."""
    positions = factorizations.arange(op, op.size(order, -1))
    return op.Cast(op.Equal(factorizations.as_columns(op, positions), op.Unsqueeze(order, [-2])), to=like.dtype)


@rule("aten::linalg_lu")
def linalg_lu(op, A, *, pivot=True):
    packed, _, order, _ = factorizations.lu(op, A, pivot=pivot)
    empty = op.constant(np.zeros(0, A.dtype.numpy()))
    return _permutation(op, order, A) if pivot else empty, *_parts(op, packed)


@rule("aten::lu_unpack")
def lu_unpack(op, LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    empty = op.constant(np.zeros(0, LU_data.dtype.numpy()))
    order = _order(op, LU_data, LU_pivots) if unpack_pivots else None
    low, high = _parts(op, LU_data) if unpack_data else (empty, empty)
    return empty if order is None else _permutation(op, order, LU_data), low, high


def _order(op, packed, pivots):
    return factorizations.row_order(op, op.Sub(op.Cast(pivots, to=D.INT64), 1), op.size(packed, -2))


@rule("aten::linalg_lu_solve")
def linalg_lu_solve(op, LU, pivots, B, *, left=True, adjoint=False):
    order = _order(op, LU, pivots)
    if left:
        return factorizations.solve_factored(op, LU, order, B, adjoint=adjoint)
    return matrix_transpose(op, factorizations.solve_factored(op, LU, order, matrix_transpose(op, B), adjoint=not adjoint))


def is_vector(a, b):
    """Whether the right-hand side is a batch of vectors, as torch.linalg.solve decides."""
    return len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and list(b.shape) == list(a.shape)[:-1])


@rule("aten::_linalg_solve_ex")
def linalg_solve_ex(op, A, B, *, left=True, check_errors=False):
    vector = is_vector(A, B)
    b = factorizations.as_columns(op, B) if vector else B
    b = b if left or vector else matrix_transpose(op, b)
    packed, _, order, info = factorizations.lu(op, A if left else matrix_transpose(op, A))
    x = factorizations.solve_factored(op, packed, order, b)
    x = op.Squeeze(x, [-1]) if vector else _transpose_if(op, x, not left)
    return x, None, None, info  # the factors are only used for gradients


@rule("aten::linalg_inv_ex")
def linalg_inv_ex(op, A, *, check_errors=False):
    if A.shape[-1] == 0:
        return A, _per_matrix(op, A, 0, D.INT32)
    packed, _, order, info = factorizations.lu(op, A)
    return factorizations.solve_factored(op, packed, order, factorizations.identity(op, op.size(A, -1), A)), info


@rule("aten::_linalg_slogdet")
def linalg_slogdet(op, A):
    if A.shape[-1] == 0:
        return _per_matrix(op, A, 1, A.dtype), _per_matrix(op, A, 0, A.dtype), None, None
    sign, size, packed, swaps = factorizations.slogdet(op, A)
    return sign, size, packed, _lapack_pivots(op, swaps)


@rule("aten::linalg_ldl_factor_ex")
def linalg_ldl_factor_ex(op, self, *, hermitian=False, check_errors=False):
    if self.shape[-1] == 0:
        return self, fill(op, sizes(op, self)[:-1], 0, D.INT32), _per_matrix(op, self, 0, D.INT32)
    return ldl.ldl(op, self)


@rule("aten::linalg_ldl_solve")
def linalg_ldl_solve(op, LD, pivots, B, *, hermitian=False):
    return ldl.solve_ldl(op, LD, op.Cast(pivots, to=D.INT64), B)


@rule("aten::geqrf")
def geqrf(op, self):
    return factorizations.householder(op, self)


@rule("aten::linalg_qr")
def linalg_qr(op, A, mode="reduced"):
    if mode == "r":
        packed, _ = factorizations.householder(op, A)
        rows = min(A.shape[-2:]) if all(isinstance(d, int) for d in A.shape[-2:]) else op.Min(op.size(A, -2), op.size(A, -1))
        empty = op.constant(np.zeros(0, A.dtype.numpy()))
        return empty, op.Trilu(op.Slice(packed, [0], op.dims([rows]), [-2]), np.int64(0), upper=1)
    return factorizations.qr(op, A, complete=mode == "complete")


@rule("aten::linalg_householder_product")
def householder_product(op, input, tau):
    eye = factorizations.identity(op, op.size(input, -2), input)
    start = op.Slice(eye, [0], op.dims([op.size(input, -1)]), [1])
    return factorizations.apply_reflections(op, input, tau, start)


@rule("aten::orgqr")
def orgqr(op, self, input2):
    return householder_product(op, self, input2)


@rule("aten::ormqr")
def ormqr(op, self, input2, input3, left=True, transpose=False):
    if left:
        return factorizations.apply_reflections(op, self, input2, input3, transposed=transpose)
    other = matrix_transpose(op, input3)
    return matrix_transpose(op, factorizations.apply_reflections(op, self, input2, other, transposed=not transpose))


@rule("aten::_linalg_eigh", limits="signs of eigenvectors are not LAPACK's: they cannot be outputs of the model")
def linalg_eigh(op, A, UPLO="L", compute_v=True):
    triangle = op.Trilu(A, np.int64(0), upper=int(UPLO == "U"))
    rest = op.Trilu(A, np.int64(1 if UPLO == "U" else -1), upper=int(UPLO == "U"))
    values, vectors = factorizations.eigh(op, op.Add(triangle, matrix_transpose(op, rest)))
    return values, mark_undetermined(op, vectors) if compute_v else op.constant(np.zeros(0, A.dtype.numpy()))


@rule("aten::_linalg_svd", limits="signs of singular vectors are not LAPACK's: they cannot be outputs of the model")
def linalg_svd(op, A, full_matrices=False, compute_uv=True, *, driver=None):
    u, values, v = factorizations.svd(op, A, full=full_matrices, compute_uv=compute_uv)
    if not compute_uv:
        empty = op.constant(np.zeros(0, A.dtype.numpy()))
        return empty, values, empty
    return mark_undetermined(op, u), values, mark_undetermined(op, matrix_transpose(op, v))


@rule("aten::linalg_pinv.atol_rtol_tensor")
def linalg_pinv(op, self, *, atol=None, rtol=None, hermitian=False):
    if hermitian:
        values, vectors = linalg_eigh(op, self)
        size = op.Abs(values)
    else:
        is_wide = factorizations.is_wide(self)
        values, left, right = factorizations.jacobi_svd(op, _transpose_if(op, self, is_wide))
        size = values
    min_dim = _tolerance(op, self, size, atol, rtol)
    is_nonzero = op.Greater(size, min_dim)
    inverse = op.Where(is_nonzero, op.Reciprocal(op.Where(is_nonzero, values, 1.0)), 0.0)
    if hermitian:
        return op.MatMul(op.Mul(vectors, op.Unsqueeze(inverse, [-2])), matrix_transpose(op, vectors))
    scaled = op.Mul(op.Mul(right, op.Unsqueeze(inverse, [-2])), op.Unsqueeze(inverse, [-2]))
    return _transpose_if(op, op.MatMul(scaled, matrix_transpose(op, left)), is_wide)


def _tolerance(op, a, sizes, atol, rtol):
    """The singular value below which it counts as zero, broadcastable to the singular values."""
    largest = op.ReduceMax(sizes, [-1], keepdims=1)
    m, n = op.size(a, -2), op.size(a, -1)
    largest_dim = op.Cast(op.Max(m, n), to=a.dtype) if isinstance(m, ir.Value) or isinstance(n, ir.Value) else float(max(m, n))
    default = op.Mul(largest, op.Mul(op.constant(np.finfo(a.dtype.numpy()).eps), largest_dim))
    if rtol is None and atol is None:
        return default
    parts = [] if atol is None else [_broadcastable(op, atol, a)]
    if rtol is not None:
        parts.append(op.Mul(largest, _broadcastable(op, rtol, a)))
    else:  # PyTorch's default relative tolerance is 0 if an absolute one above 0 is given
        parts.append(op.Where(op.Greater(parts[0], 0.0), 0.0, default))
    return op.Max(*parts)


def _broadcastable(op, tolerance, a):
    x = cast(op, tolerance, a.dtype)
    return op.Unsqueeze(x, [-1]) if len(x.shape) else x


@rule("aten::linalg_matrix_exp", "aten::matrix_exp")
def matrix_exp(op, self):
    """Taylor series of the matrix scaled by a power of two, then repeated squaring; in double, as squaring loses precision."""
    if self.shape[-1] == 1:
        return op.Exp(self)
    x = cast(op, self, D.DOUBLE)
    norm = op.ReduceMax(op.ReduceSum(op.Abs(x), [-2], keepdims=0), [-1], keepdims=0)
    squarings = op.Unsqueeze(op.Add(op.Ceil(op.Div(op.Log(op.Max(norm, 0.5)), math.log(2))), 1.0), [-2, -1])
    x = op.Mul(x, op.Pow(op.constant(np.float64(2)), op.Neg(squarings)))
    eye = factorizations.identity(op, op.size(x, -1), x)
    y = op.Add(op.Div(x, 16.0), eye)
    for k in range(15, 0, -1):
        y = op.Add(op.Div(op.MatMul(x, y), float(k)), eye)
    trip_count = op.Cast(op.ReduceMax(op.reshape(squarings, [-1]), keepdims=0), to=D.INT64)

    def body(iteration, condition, y):
        continues = op.Less(op.Cast(iteration, to=D.DOUBLE), squarings)
        return condition, op.Where(continues, op.MatMul(y, y), y)

    return cast(op, op.Loop(trip_count, True, y, body=body), self.dtype)
