"""Matrix products."""

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir.values import rank
from onnxbridge.rules import Array, Int, Ints


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


@rule("MatrixBandPart")
def matrix_band_part(op, input, num_lower: Int, num_upper: Int):
    x = input
    if num_upper >= 0:
        x = op.Trilu(x, np.int64(num_upper), upper=0)
    if num_lower >= 0:
        x = op.Trilu(x, np.int64(-num_lower), upper=1)
    return x


@rule("MatrixDiagPartV3", limits="the main diagonal")
def matrix_diag_part_v3(op, input, k: Ints, padding_value, *, align="RIGHT_LEFT"):
    if set(k) != {0}:
        raise Unsupported(f"the diagonals {tuple(k)}")
    sizes = list(input.shape)[-2:]
    if not all(isinstance(s, int) for s in sizes):
        raise Unsupported("the diagonal of a matrix of unknown size")
    n = min(sizes)
    flat = op.Reshape(input, op.Concat(op.Shape(input, end=-2), np.array([-1], np.int64), axis=0))
    return op.Gather(flat, np.arange(n) * (sizes[1] + 1), axis=-1)


@rule("MatrixDiagV3", limits="the main diagonal of a square matrix")
def matrix_diag_v3(op, diagonal, k: Ints, num_rows: Int, num_cols: Int, padding_value: Array, *, align="RIGHT_LEFT"):
    n = diagonal.shape[-1]
    if set(k) != {0} or not isinstance(n, int) or {num_rows, num_cols} - {-1, n}:
        raise Unsupported("a diagonal other than the main one, or of unknown size")
    return op.Where(np.eye(n, dtype=bool), op.Unsqueeze(diagonal, [-2]), np.asarray(padding_value).reshape(()))


@rule("Cross")
def cross(op, a, b):
    def rolled(x, by):
        return op.Gather(x, np.roll(np.arange(3), -by), axis=-1)

    return op.Sub(op.Mul(rolled(a, 1), rolled(b, 2)), op.Mul(rolled(a, 2), rolled(b, 1)))
