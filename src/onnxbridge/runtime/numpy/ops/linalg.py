"""Matrix products and what else is linear algebra."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.limits import COUNTED, claim
from onnxbridge.runtime.numpy.dtypes import widened
from onnxbridge.runtime.numpy.ops import rule


def matmul_claimed(a, b):
    """The matrix product, asked for no more than the budget allows."""
    if a.size * b.size > COUNTED and a.ndim > 1 and b.ndim > 1:
        claim((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)
    return np.matmul(a, b)


@rule("MatMul")
@widened
def matmul(A, B):
    return matmul_claimed(A, B)


@rule("Gemm")
@widened
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    y = matmul_claimed(A.T if transA else A, B.T if transB else B)
    if alpha != 1:
        y = (y * alpha).astype(A.dtype, copy=False)
    if C is None or beta == 0:
        return y
    return y + (C if beta == 1 else (C * beta).astype(A.dtype, copy=False))


@rule("Einsum")
@widened
def einsum(*Inputs, equation):
    _claim_einsum(equation, Inputs)
    y = np.einsum(equation.replace(" ", ""), *Inputs, optimize=len(Inputs) > 1)
    return np.asarray(y, Inputs[0].dtype)


def _claim_einsum(equation, arrays):
    terms, _, result = equation.replace(" ", "").partition("->")
    sizes = {}
    rest = ()
    for term, array in zip(terms.split(","), arrays, strict=True):
        front, dots, back = term.partition("...")
        named = len(front) + len(back)
        if dots:
            rest = np.broadcast_shapes(rest, array.shape[len(front) : len(front) + array.ndim - named])
        dims = array.shape[: len(front)] + (array.shape[array.ndim - len(back) :] if back else ())
        sizes.update(zip(front + back, dims, strict=True))
    if "->" not in equation:
        result = "..." + "".join(c for c in sizes if terms.count(c) == 1)
    out = [sizes[c] for c in result.replace("...", "")]
    claim([*(rest if "..." in result else ()), *out], arrays[0].dtype)


@rule("Det")
@widened
def det(X):
    return np.linalg.det(X)
