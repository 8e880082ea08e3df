"""Products of matrices."""

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.types import is_float, like


@rule("MatMul")
def mat_mul(A, B):
    """MIL wants two axes at least on both sides."""
    if A.rank == 1 and B.rank == 1:
        return mb.reduce_sum(x=mb.mul(x=A, y=B), axes=[0], keep_dims=False)
    if A.rank == 1:
        y = mb.matmul(x=mb.expand_dims(x=A, axes=[0]), y=B)
        return mb.squeeze(x=y, axes=[-2])
    if B.rank == 1:
        return mb.squeeze(x=mb.matmul(x=A, y=mb.expand_dims(x=B, axes=[1])), axes=[-1])
    return mb.matmul(x=A, y=B)


@rule("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """`linear` where weights and bias are constant, as Apple's own converters write a dense layer."""
    if alpha == 1 and beta == 1 and not transA and is_float(A) and B.val is not None:
        bias = None if C is None else C.val
        row = bias is not None and bias.size == B.shape[0 if transB else 1] and bias.ndim <= 2 and bias.shape[-1:] == (bias.size,)
        if C is None or row:
            weight = B.val if transB else np.ascontiguousarray(B.val.T)
            return mb.linear(x=A, weight=weight, bias=None if bias is None else bias.reshape(-1))
    y = mb.matmul(x=A, y=B, transpose_x=bool(transA), transpose_y=bool(transB))
    if alpha != 1:
        y = mb.mul(x=y, y=like(y, alpha))
    if C is None or beta == 0:
        return y
    return mb.add(x=y, y=C if beta == 1 else mb.mul(x=C, y=like(C, beta)))
