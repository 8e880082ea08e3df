"""Matrix products and diagonals."""

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.tensorflow.ops import linalg as tf
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.ir.values import rank, static_shape


@rule("FULLY_CONNECTED")
def fully_connected(op, input, weights, bias=None, *, weights_format="DEFAULT", keep_num_dims=False):
    """The weights are [out, in]."""
    if weights_format != "DEFAULT":
        raise Unsupported(f"weights_format={weights_format}", "convert the model again without shuffled weights")
    within = weights.shape[-1]
    if not keep_num_dims and (rank(input) != 2 or input.shape[1] != within):
        input = op.Reshape(input, [-1, within])
    if rank(input) == 2:
        return op.Gemm(input, weights, bias, transB=1)
    y = op.MatMul(input, op.Transpose(weights, perm=[1, 0]))
    return y if bias is None else op.Add(y, bias)


@rule("BATCH_MATMUL")
def batch_matmul(op, x, y, *, adj_x=False, adj_y=False):
    """Products of eight-bit integers that are not quantized are int32."""
    tout = ir.DataType.INT32 if x.dtype.bitwidth == 8 else x.dtype
    return tf.batch_mat_mul_v2(op, x, y, adj_x=adj_x, adj_y=adj_y, Tout=tout)


@rule("MATRIX_DIAG")
def matrix_diag(op, diagonal):
    (n,) = static_shape(diagonal, [-1])
    return op.Where(np.eye(n, dtype=bool), op.Unsqueeze(diagonal, [-2]), np.zeros((), diagonal.dtype.numpy()))


@rule("MATRIX_SET_DIAG")
def matrix_set_diag(op, input, diagonal):
    rows, columns = static_shape(input, [-2, -1])
    least = min(rows, columns)
    placed = op.Unsqueeze(diagonal, [-1] if rows <= columns else [-2])
    placed = op.Expand(placed, op.Concat(op.Shape(input, end=-2), np.array(
        [least, columns] if rows <= columns else [rows, least]), axis=0)) if rows != columns else placed
    return op.Where(np.eye(rows, columns, dtype=bool), placed, input)
