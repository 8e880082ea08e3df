"""Fused operators: several of ONNX's in one, as ONNX Runtime documents and computes them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.contrib import MICROSOFT, contrib, rank_of
from onnxbridge.rules import Array, Outputs


def _transposed(op, x):
    rank = rank_of(x)
    return op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2]) if rank > 1 else x


def _activated(op, y, name, params):
    """An activation by its name in the fused operators; they hand its numbers over in the order in which it takes them."""
    plain = {"": lambda: y, "Relu": lambda: op.Relu(y), "Tanh": lambda: op.Tanh(y), "Sigmoid": lambda: op.Sigmoid(y)}
    numbered = {
        "LeakyRelu": lambda alpha=0.01: op.LeakyRelu(y, alpha=alpha),
        "HardSigmoid": lambda alpha=0.2, beta=0.5: op.HardSigmoid(y, alpha=alpha, beta=beta),
        "Clip": lambda low, high: op.Clip(y, low, high),
    }
    if name in plain:
        return plain[name]()
    if name not in numbered:
        raise Unsupported(f"activation {name!r}")
    return numbered[name](*params)


@contrib(MICROSOFT + "FusedMatMul", MICROSOFT + "TransposeMatMul")
def fused_mat_mul(op, A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    if transBatchA or transBatchB:
        raise Unsupported("a batch in the place of the rows")
    y = op.MatMul(_transposed(op, A) if transA else A, _transposed(op, B) if transB else B)
    return y if alpha == 1.0 else op.Mul(y, alpha)


@contrib(MICROSOFT + "FusedGemm")
def fused_gemm(
    op, A, B, C=None, *, activation="", activation_alpha=None, activation_beta=None, activation_gamma=None, alpha=1.0, beta=1.0,
    transA=0, transB=0,
):  # fmt: skip
    y = op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(op, y, activation, [p for p in (activation_alpha, activation_beta, activation_gamma) if p is not None])


@contrib(MICROSOFT + "FusedConv")
def fused_conv(
    op, X, W, B=None, Z=None, *, activation="", activation_params=(), auto_pad="NOTSET", dilations=None, group=1,
    kernel_shape=None, pads=None, strides=None,
):  # fmt: skip
    moves = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "kernel_shape": kernel_shape, "pads": pads}
    y = op.Conv(X, W, B, strides=strides, **moves)
    return _activated(op, y if Z is None else op.Add(y, Z), activation, activation_params)


@contrib(MICROSOFT + "Gelu")
def gelu(op, X):
    return op.Gelu(X)


@contrib(MICROSOFT + "BiasGelu")
def bias_gelu(op, A, B):
    return op.Gelu(op.Add(A, B))


@contrib(MICROSOFT + "FastGelu")
def fast_gelu(op, X, bias=None):
    return op.Gelu(X if bias is None else op.Add(X, bias), approximate="tanh")


@contrib(MICROSOFT + "QuickGelu")
def quick_gelu(op, X, *, alpha=1.702):
    return op.Mul(X, op.Sigmoid(op.Mul(X, alpha)))


@contrib(MICROSOFT + "Inverse")
def inverse(op, X):
    """By the adjugate, which is for small matrices only."""
    if X.shape is None or X.shape[-1] not in (1, 2):
        raise Unsupported("the inverse of a matrix larger than 2 x 2")
    if X.shape[-1] == 1:
        return op.Reciprocal(X)
    turned = op.Gather(op.Gather(X, [1, 0], axis=-1), [1, 0], axis=-2)
    signs = op.CastLike(np.array([[1, -1], [-1, 1]], np.float32), X)
    return op.Div(_transposed(op, op.Mul(turned, signs)), op.Unsqueeze(op.Det(X), [-2, -1]))


@contrib(MICROSOFT + "Trilu")
def trilu(op, X, k=None, *, upper=1):
    return op.Trilu(X, k, upper=upper)


@contrib(MICROSOFT + "SkipLayerNormalization")
def skip_layer_normalization(op, input, skip, gamma, beta=None, bias=None, *, epsilon=1e-12, outputs: Outputs = (True,)):
    total = _skipped(op, input, skip, bias, outputs)
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), None, None, total


@contrib(MICROSOFT + "SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op, input, skip, gamma, bias=None, *, epsilon=1e-12, outputs: Outputs = (True,)):
    total = _skipped(op, input, skip, bias, outputs)
    return op.RMSNormalization(total, gamma, axis=-1, epsilon=epsilon), None, None, total


def _skipped(op, input, skip, bias, outputs):
    if any(outputs[1:3]):
        raise Unsupported("the mean and the deviation, which are for training")
    total = op.Add(input, skip)
    return total if bias is None else op.Add(total, bias)


@contrib(MICROSOFT + "EmbedLayerNormalization")
def embed_layer_normalization(
    op, input_ids, segment_ids=None, word_embedding=None, position_embedding=None, segment_embedding=None, gamma=None, beta=None,
    mask=None, position_ids=None, *, epsilon=1e-12, mask_index_type=0, outputs: Outputs = (True,),
):  # fmt: skip
    """The mask's index is how many ones each row has."""
    if position_ids is None:
        zero, one = np.array(0, np.int64), np.array(1, np.int64)
        position_ids = op.Unsqueeze(op.Range(zero, op.Squeeze(op.Shape(input_ids, start=1, end=2), [0]), one), [0])
    total = op.Add(op.Gather(word_embedding, input_ids), op.Gather(position_embedding, position_ids))
    if segment_ids is not None:
        total = op.Add(total, op.Gather(segment_embedding, segment_ids))
    rows = op.Mul(op.Squeeze(op.Slice(input_ids, [0], [1], [1]), [1]), 0)
    index = op.Cast(rows, to=6) if mask is None else op.Cast(op.ReduceSum(mask, [1], keepdims=0), to=6)
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), index, total


@contrib(MICROSOFT + "MatMulNBits")
def mat_mul_n_bits(
    op, A, B: Array, scales, zero_points: Array | None = None, g_idx=None, bias=None, *, K, N, accuracy_level=0, bits=4,
    block_size, weight_prepacked=0,
):  # fmt: skip
    """The weights (N, K) lie packed in blocks along K, low bits first; without zero points the middle of the range is 0."""
    if bits not in (2, 4, 8) or g_idx is not None or weight_prepacked:
        raise Unsupported(f"weights of {bits} bits, in another order or prepacked")
    blocks = -(-K // block_size)
    held = {2: "UINT2", 4: "UINT4", 8: "UINT8"}[bits]
    codes = _unpacked(B.reshape(N, -1), bits)[:, :K]
    zeros = np.full((N, blocks), 1 << (bits - 1), np.uint8)
    if zero_points is not None:
        if zero_points.dtype != np.uint8:
            raise Unsupported("zero points that are not whole numbers")
        zeros = _unpacked(zero_points.reshape(N, -1), bits)[:, :blocks]
    rest = blocks * block_size - K
    codes = np.pad(codes, [(0, 0), (0, rest)])

    def small(array):
        kind = ir.DataType[held]
        return op.constant(ir.tensor(array.astype(kind.numpy()), dtype=kind))

    table = op.Reshape(scales, [N, blocks])
    weights = op.DequantizeLinear(small(codes), table, small(zeros), axis=1, block_size=block_size)
    if rest:
        weights = op.Slice(weights, [0], [K], [1])
    y = op.MatMul(A, op.Transpose(weights, perm=[1, 0]))
    return y if bias is None else op.Add(y, bias)


def _unpacked(rows, bits):
    """Numbers of a few bits, low ones first in each byte: (rows, bytes) to (rows, numbers)."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(len(rows), -1)
