"""Matrix products."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import rank


def _transposed(op, x, transpose):
    if not transpose:
        return x
    n = rank(x)
    return op.Transpose(x, perm=[*range(n - 2), n - 1, n - 2])


@rule("MatMul")
def mat_mul(op, a, b, *, transpose_a=False, transpose_b=False):
    return op.MatMul(_transposed(op, a, transpose_a), _transposed(op, b, transpose_b))


@rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul_v2(op, x, y, *, adj_x=False, adj_y=False, Tout=None):
    if Tout is not None and Tout != x.dtype:
        raise Unsupported("a product with another output type")
    if x.dtype.name.startswith("COMPLEX"):
        raise Unsupported("a product of complex matrices")
    return op.MatMul(_transposed(op, x, adj_x), _transposed(op, y, adj_y))


@rule("Einsum")
def einsum(op, inputs, *, equation):
    return op.Einsum(*inputs, equation=equation)


@rule("Cross")
def cross(op, a, b):
    def rolled(x, by):
        return op.Gather(x, np.roll(np.arange(3), -by), axis=-1)

    return op.Sub(op.Mul(rolled(a, 1), rolled(b, 2)), op.Mul(rolled(a, 2), rolled(b, 1)))
