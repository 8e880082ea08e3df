"""Matrix products, Einsum and determinants."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import rank


@rule("MatMul")
def mat_mul(A, B):
    if A.dtype in (tf.uint32, tf.uint64):  # the same bits as signed integers
        signed = tf.int32 if A.dtype == tf.uint32 else tf.int64
        return tf.cast(mat_mul(tf.cast(A, signed), tf.cast(B, signed)), A.dtype)
    a = tf.expand_dims(A, 0) if rank(A) == 1 else A
    b = tf.expand_dims(B, 1) if rank(B) == 1 else B
    gone = [d for d, x in ((-2, A), (-1, B)) if rank(x) == 1]
    y = tf.matmul(a, b)
    return tf.squeeze(y, gone) if gone else y


@rule("Gemm")
def gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    product = mat_mul(tf.transpose(A) if transA else A, tf.transpose(B) if transB else B)
    product = product if alpha == 1.0 else scaled(product, alpha)
    if C is None:
        return product
    # TensorFlow fuses the addition, and then misreads a row vector as a matrix of another height
    C = tf.reshape(C, [-1]) if rank(C) == 2 and C.shape[0] == 1 else C
    return product + (C if beta == 1.0 else scaled(C, beta))


def scaled(x, factor):
    """Multiply by a float in the dtype of `x`."""
    return tf.cast(tf.cast(x, tf.float64) * factor, x.dtype) if x.dtype.is_integer else x * factor


def shifted(x, zero_point, axis):
    """Quantized values minus their zero point, which is a scalar or has one element for each index of `axis`."""
    x = tf.cast(x, tf.int32)
    if zero_point is None:
        return x
    zero_point = tf.cast(zero_point, tf.int32)
    return x - (tf.expand_dims(zero_point, -1) if rank(zero_point) and axis == -2 else zero_point)


@rule("MatMulInteger")
def mat_mul_integer(A, B, a_zero_point=None, b_zero_point=None):
    return mat_mul(shifted(A, a_zero_point, -2), shifted(B, b_zero_point, -1))


@rule("Det")
def det(X):
    return tf.linalg.det(X)


@rule("Einsum")
def einsum(*Inputs, equation):
    dtype = Inputs[0].dtype
    if dtype.is_integer and dtype not in (tf.int32, tf.int64):  # TensorFlow has no kernels; the low bits are the same
        return tf.cast(einsum(*(tf.cast(x, tf.int64) for x in Inputs), equation=equation), dtype)
    return tf.einsum(equation.replace(" ", ""), *Inputs)
