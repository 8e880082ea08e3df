"""Matrix products."""

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.layout import rank
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.rules import Int


def _turned(op, x, turn):
    if not turn:
        return x
    n = rank(x)
    return op.Transpose(x, perm=[*range(n - 2), n - 1, n - 2])


@rule("MatMul")
def mat_mul(op, a, b, *, transpose_a=False, transpose_b=False):
    return op.MatMul(_turned(op, a, transpose_a), _turned(op, b, transpose_b))


@rule("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_mat_mul_v2(op, x, y, *, adj_x=False, adj_y=False, Tout=None):
    if Tout is not None and Tout != x.dtype:
        raise Unsupported("a product in another type than its operands'")
    if x.dtype.name.startswith("COMPLEX"):
        raise Unsupported("a product of complex matrices")
    return op.MatMul(_turned(op, x, adj_x), _turned(op, y, adj_y))


@rule("Einsum")
def einsum(op, inputs, *, equation):
    return op.Einsum(*inputs, equation=equation)


@rule("MatrixBandPart")
def matrix_band_part(op, input, num_lower: Int, num_upper: Int):
    import numpy as np

    x = input
    if num_upper >= 0:
        x = op.Trilu(x, np.int64(num_upper), upper=0)
    if num_lower >= 0:
        x = op.Trilu(x, np.int64(-num_lower), upper=1)
    return x
