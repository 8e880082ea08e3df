"""Matrix products."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.decompositions.linalg import einsum as einsums
from onnxbridge.hub.ir.values import rank


def transposed(op, x, transpose):
    if not transpose:
        return x
    n = rank(x)
    return op.Transpose(x, perm=[*range(n - 2), n - 1, n - 2])


@rule("MatMul")
def mat_mul(op, a, b, *, transpose_a=False, transpose_b=False):
    return op.MatMul(transposed(op, a, transpose_a), transposed(op, b, transpose_b))


@rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul_v2(op, x, y, *, adj_x=False, adj_y=False, Tout=None):
    x, y = transposed(op, x, adj_x), transposed(op, y, adj_y)
    if Tout in (None, x.dtype) and x.dtype == y.dtype:
        return op.MatMul(x, y)
    if Tout == ir.DataType.INT32 and x.dtype.bitwidth == y.dtype.bitwidth == 8:
        return op.MatMulInteger(x, y)
    raise Unsupported(f"a product of {x.dtype.name} and {y.dtype.name} as {Tout.name if Tout else 'unknown'}")


@rule("Einsum")
def einsum(op, inputs, *, equation):
    return einsums.einsum(op, inputs, equation)


@rule("Cross")
def cross(op, a, b):
    def rolled(x, by):
        return op.Gather(x, np.roll(np.arange(3), -by), axis=-1)

    return op.Sub(op.Mul(rolled(a, 1), rolled(b, 2)), op.Mul(rolled(a, 2), rolled(b, 1)))
