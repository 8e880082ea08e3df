"""Matrix products, Einsum and determinants."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch.ops import rule

rule.table(MatMul=torch.matmul, Det=torch.linalg.det)


@rule("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    plain = alpha == beta == 1.0 and A.dtype.is_floating_point
    if plain and transB and not transA and (C is None or (C.ndim == 1 and C.shape[0] == B.shape[0])):
        return F.linear(A, B, C)
    if plain and C is not None and C.ndim == 1 and C.shape[0] != 1:
        return torch.addmm(C, A.t() if transA else A, B.t() if transB else B)
    product = torch.matmul(A.t() if transA else A, B.t() if transB else B)
    if alpha != 1.0:
        product = scaled(product, alpha)
    return product if C is None else product + (C if beta == 1.0 else scaled(C, beta))


def scaled(x, factor):
    """Multiply by a float in the dtype of `x`."""
    return (x * factor).to(x.dtype)


def shifted(x, zero_point, axis):
    """Quantized values minus their zero point, which is a scalar or has one element for each index of `axis`."""
    x = x.to(torch.int32)
    if zero_point is None:
        return x
    zero_point = zero_point.to(torch.int32)
    return x - (zero_point.unsqueeze(-1) if zero_point.ndim and axis == -2 else zero_point)


@rule("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return torch.matmul(shifted(A, a_zero_point, -2), shifted(B, b_zero_point, -1))


@rule("Einsum")
def einsum(*Inputs, equation):
    return torch.einsum(equation.replace(" ", ""), *Inputs)
