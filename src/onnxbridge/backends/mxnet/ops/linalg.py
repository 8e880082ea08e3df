"""Matrix products."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, is_float, rank, within


def product(sym, a, b):
    """MXNet multiplies float32 and float64 on a CPU; other dtypes are computed in those if exact."""
    if a.dtype == np.float16:
        return within(sym, sym._npi_matmul, np.float32, a, b)
    return sym._npi_matmul(a, b) if is_float(a) else within(sym, sym._npi_matmul, np.float64, a, b)


def dense(sym, x, weight, bias=None):
    """A fully connected layer over the last axis; its weight is [units, inputs]."""
    y = sym.FullyConnected(x, weight, bias, num_hidden=weight.shape[0], no_bias=bias is None, flatten=False)
    y.dtype = x.dtype
    return y


def _is_dense(x, weight):
    """Whether MXNet has this product as a layer."""
    ranked = x.shape is not None and len(x.shape) > 1 and 0 not in x.shape
    fixed_size = weight is not None and len(weight.shape) == 2 and all(isinstance(d, int) and d for d in weight.shape)
    return ranked and fixed_size and is_float(x) and x.dtype != np.float16 and weight.dtype == x.dtype


@rule("MatMul")
def matmul(sym, A, B):
    weight = sym.transposed(B)
    return dense(sym, A, weight) if _is_dense(A, weight) else product(sym, A, B)


@rule("Gemm")
def gemm(sym, A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    weight = B if transB else sym.transposed(B)
    if alpha == 1 and not transA and _is_dense(A, weight) and (C is None or (beta == 1 and C.shape == weight.shape[:1])):
        return dense(sym, A, weight, C)
    a = sym.transpose(A, axes=(1, 0)) if transA else A
    b = sym.transpose(B, axes=(1, 0)) if transB else B
    y = product(sym, a, b)
    y = y if alpha == 1 else _scaled(sym, y, alpha)
    return y if C is None else sym._npi_add(y, C if beta == 1 else _scaled(sym, C, beta))


def _scaled(sym, x, factor):
    if is_float(x):
        return sym._mul_scalar(x, scalar=factor, is_int=False)
    return within(sym, lambda v: sym._mul_scalar(v, scalar=factor, is_int=False), np.float64, x)


@rule("MatMulInteger")
def matmul_integer(sym, A, B, a_zero_point=None, b_zero_point=None):
    a, b = (cast(sym, v, np.float64) for v in (A, B))
    if a_zero_point is not None:
        zero = cast(sym, a_zero_point, np.float64)
        wide = rank(a_zero_point) == 1 and rank(A) > 1
        a = sym._npi_subtract(a, sym.expand_dims(zero, axis=1) if wide else zero)
    if b_zero_point is not None:
        b = sym._npi_subtract(b, cast(sym, b_zero_point, np.float64))
    y = sym._npi_matmul(a, b)
    y.dtype = np.dtype(np.float64)
    return cast(sym, y, np.int32)


@rule("Einsum")
def einsum(sym, *Inputs, equation):
    return sym._npi_einsum(*Inputs, subscripts=equation.replace(" ", ""), optimize=0)


@rule("Det")
def det(sym, X):
    return sym._npi_det(X)
