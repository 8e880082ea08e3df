"""Matrix products."""

from __future__ import annotations

import numpy as np

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import cast, fixed, is_float, rank, within


def product(sym, a, b):
    """MXNet multiplies float32 and float64 on a CPU; other dtypes are computed in those if exact."""
    if a.dtype == np.float16:
        return within(sym, sym._npi_matmul, np.float32, a, b)
    return sym._npi_matmul(a, b) if is_float(a) else within(sym, sym._npi_matmul, np.float64, a, b)


@rule("MatMul")
def matmul(sym, A, B):
    return product(sym, A, B)


@rule("Gemm")
def gemm(sym, A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    plain = alpha == 1 and rank(A) == 2 and not transA and transB and is_float(A) and A.dtype != np.float16
    if plain and (C is None or (beta == 1 and C.shape == B.shape[:1])) and isinstance(B.shape[0], int):
        return sym.FullyConnected(A, B, C, num_hidden=fixed(B, [0])[0], no_bias=C is None, flatten=False)
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
