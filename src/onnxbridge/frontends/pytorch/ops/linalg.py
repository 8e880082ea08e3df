"""Matrix products and what is computed from them."""

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.pytorch.fx.promotion import cast, is_float
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.arithmetic import add_promoted, multiply_promoted
from onnxbridge.frontends.pytorch.ops.creation import fill
from onnxbridge.hub.decompositions.linalg import einsum as einsums
from onnxbridge.hub.ir.values import rank

D = ir.DataType


def matrix_product(op, a, b):
    """a @ b for any dtype: ONNX Runtime has no kernels for integers below 32 bits."""
    if is_float(a) or a.dtype in (D.INT32, D.INT64, D.UINT32, D.UINT64):
        return op.MatMul(a, b)
    return op.Cast(op.MatMul(op.Cast(a, to=D.INT32), op.Cast(b, to=D.INT32)), to=a.dtype)


@rule("aten::matmul", "aten::linalg_matmul")
def matmul(op, self, other):
    return matrix_product(op, self, other)


@rule("aten::mm", "aten::bmm")
def mm(op, self, mat2):
    return matrix_product(op, self, mat2)


@rule("aten::mv")
def mv(op, self, vec):
    return matrix_product(op, self, vec)


@rule("aten::dot")
def dot(op, self, tensor):
    return matrix_product(op, self, tensor)


@rule("aten::vdot")
def vdot(op, self, other):
    return matrix_product(op, self, other)


@rule("aten::inner")
def inner(op, self, other):
    if len(self.shape) == 0 or len(other.shape) == 0:
        return op.Mul(self, other)
    last = list(range(len(other.shape)))
    if len(last) < 2:
        return matrix_product(op, self, other)
    lead = [op.size(v, i) for v in (self, other) for i in range(len(v.shape) - 1)]
    rows = op.reshape(self, [-1, op.size(self, -1)])
    columns = op.Transpose(op.reshape(other, [-1, op.size(other, -1)]), perm=[1, 0])
    return op.reshape(matrix_product(op, rows, columns), lead)


@rule("aten::outer", "aten::ger")
def outer(op, self, vec2):
    return multiply_promoted(op, op.Unsqueeze(self, [1]), vec2)


@rule("aten::linear")
def linear(op, input, weight, bias=None):
    if len(input.shape) == 2 and len(weight.shape) == 2 and is_float(input):
        return op.Gemm(input, weight, bias, transB=1)
    y = matrix_product(op, input, op.Transpose(weight, perm=[1, 0]) if len(weight.shape) == 2 else weight)
    return y if bias is None else op.Add(y, bias)


@rule("aten::addmm")
def addmm(op, self, mat1, mat2, *, beta=1, alpha=1):
    if mat1.shape[1] == 0:  # an empty sum
        zeros = fill(op, [op.size(mat1, 0), op.size(mat2, 1)], 0, mat1.dtype)
        return zeros if beta == 0 else add_promoted(op, zeros, multiply_promoted(op, self, beta))
    if is_float(mat1):
        return op.Gemm(mat1, mat2, self if beta != 0 else None, alpha=alpha, beta=beta)
    return combine(op, self, matrix_product(op, mat1, mat2), beta, alpha)


def combine(op, self, product, beta, alpha):
    """beta * self + alpha * product; with beta 0, NaN in self is ignored."""
    product = product if alpha == 1 else multiply_promoted(op, product, alpha)
    if beta == 0:
        return product
    return add_promoted(op, self if beta == 1 else multiply_promoted(op, self, beta), product)


@rule("aten::baddbmm")
def baddbmm(op, self, batch1, batch2, *, beta=1, alpha=1):
    return combine(op, self, matrix_product(op, batch1, batch2), beta, alpha)


@rule("aten::addbmm")
def addbmm(op, self, batch1, batch2, *, beta=1, alpha=1):
    products = matrix_product(op, batch1, batch2)
    widened = products if is_float(products) or products.dtype.bitwidth > 16 else op.Cast(products, to=D.INT32)
    return combine(op, self, cast(op, op.ReduceSum(widened, [0], keepdims=0), products.dtype), beta, alpha)


@rule("aten::addmv")
def addmv(op, self, mat, vec, *, beta=1, alpha=1):
    return combine(op, self, matrix_product(op, mat, vec), beta, alpha)


@rule("aten::addr")
def addr(op, self, vec1, vec2, *, beta=1, alpha=1):
    return combine(op, self, multiply_promoted(op, op.Unsqueeze(vec1, [1]), vec2), beta, alpha)


@rule("aten::einsum")
def einsum(op, equation, tensors, *, path=None):
    return einsums.einsum(op, tensors, equation)


@rule("aten::bilinear")
def bilinear(op, input1, input2, weight, bias=None):
    y = op.Einsum(input1, weight, input2, equation="...i,oij,...j->...o")
    return y if bias is None else op.Add(y, bias)


@rule("aten::linalg_det")
def linalg_det(op, A):
    return op.Det(A)


@rule("aten::det")
def det(op, self):
    return op.Det(self)


@rule("aten::tril")
def tril(op, self, diagonal=0):
    return _triangle(op, self, diagonal, upper=0)


@rule("aten::triu")
def triu(op, self, diagonal=0):
    return _triangle(op, self, diagonal, upper=1)


def _triangle(op, x, diagonal, upper):
    k = diagonal if isinstance(diagonal, ir.Value) else np.int64(diagonal)
    if x.dtype == ir.DataType.BOOL:
        return op.Cast(op.Trilu(op.Cast(x, to=ir.DataType.INT64), k, upper=upper), to=x.dtype)
    return op.Trilu(x, k, upper=upper)


# covariance


@rule("aten::cov")
def cov(op, self, *, correction=1, fweights=None, aweights=None):
    """The covariance of the rows, whose observations count `fweights` times and have the weights `aweights`."""
    x = self if rank(self) == 2 else op.reshape(self, [1, -1])
    x = x if is_float(x) else cast(op, x, D.FLOAT)
    weights = [cast(op, w, x.dtype) for w in (fweights, aweights) if w is not None]
    if weights:
        weight = op.Mul(*weights) if len(weights) == 2 else weights[0]
        total = op.ReduceSum(weight, keepdims=0)
        weighted = op.Mul(x, weight)
    else:
        total, weight, weighted = cast(op, op.constant(op.size(x, 1)), x.dtype), None, x
    centered = op.Sub(x, op.Div(op.ReduceSum(weighted, [1]), total))
    lost = op.CastLike(float(correction), x)
    if aweights is not None:
        lost = op.Mul(lost, op.Div(op.ReduceSum(op.Mul(weight, weights[-1]), keepdims=0), total))
    count = op.Max(op.Sub(total, lost), op.CastLike(0.0, x))
    left = centered if weight is None else op.Mul(centered, weight)
    found = op.Div(op.MatMul(left, op.Transpose(centered, perm=[1, 0])), count)
    return op.reshape(found, []) if rank(self) < 2 or self.shape[0] == 1 else found


@rule("aten::corrcoef")
def corrcoef(op, self):
    """The covariance of rows of variance 1, within [-1, 1]."""
    products = cov(op, self)
    if rank(products) == 0:
        return op.Div(products, products)
    deviations = op.Sqrt(op.ReduceSum(op.Mul(products, op.EyeLike(products)), [1], keepdims=1))
    shares = op.Div(op.Div(products, deviations), op.Transpose(deviations, perm=[1, 0]))
    return op.Clip(shares, op.CastLike(-1.0, shares), op.CastLike(1.0, shares))
