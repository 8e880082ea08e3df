"""Weights in few bits: products with them, and rows that are looked up in them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.rules import Array, Outputs

HELD = {2: "UINT2", 4: "UINT4", 8: "UINT8"}


@contrib(MICROSOFT + "MatMulNBits")
def mat_mul_n_bits(
    op, A, B: Array, scales, zero_points: Array | None = None, g_idx: Array | None = None, bias=None, *, K, N, accuracy_level=0,
    bits=4, block_size, weight_prepacked=0,
):  # fmt: skip
    """The weights (N, K) lie packed in blocks along K, low bits first; without zero points the middle of the range is 0."""
    if weight_prepacked:
        raise Unsupported("prepacked weights", "export without prepacking: the layout is one GPU's own")
    weights = blocked(op, B, scales, zero_points, g_idx, K, N, bits, block_size)
    y = op.MatMul(A, op.Transpose(weights, perm=[1, 0]))
    return y if bias is None else op.Add(y, bias)


def blocked(op, packed, scales, zero_points, group_of, K, N, bits, block_size):
    """Weights (N, K) of numbers that have a scale and a zero point for each block along K."""
    if bits not in HELD:
        raise Unsupported(f"weights of {bits} bits")
    blocks = -(-K // block_size)
    codes = unpacked(packed.reshape(N, -1), bits)[:, : blocks * block_size]
    table = op.Reshape(scales, [N, blocks])
    zeros = np.full((N, blocks), 1 << (bits - 1), np.uint8)
    if zero_points is not None and zero_points.dtype != np.uint8:
        return _between(op, codes[:, :K], table, zero_points.reshape(N, blocks), group_of, block_size)
    if zero_points is not None:
        zeros = unpacked(zero_points.reshape(N, -1), bits)[:, :blocks]
    if group_of is not None:
        at = group_of.reshape(-1)[:K].astype(np.int64)
        apart = codes[:, :K].astype(np.int16) - np.take(zeros, at, 1)
        held = op.constant(apart.astype(np.int8) if bits < 8 else apart)
        return op.Mul(op.CastLike(held, table), op.Gather(table, at, axis=1))
    numbers, middle = (packed_constant(op, v, bits) for v in (codes, zeros))
    whole = op.DequantizeLinear(numbers, table, middle, axis=1, block_size=block_size)
    return op.Slice(whole, [0], [K], [1]) if blocks * block_size > K else whole


def _between(op, codes, table, zeros, group_of, block_size):
    """With zero points that are no whole numbers."""
    at = np.arange(codes.shape[1]) // block_size if group_of is None else group_of.reshape(-1)[: codes.shape[1]].astype(np.int64)
    apart = op.Sub(op.CastLike(op.constant(codes), table), op.Gather(op.constant(zeros), at, axis=1))
    return op.Mul(apart, op.Gather(table, at, axis=1))


def packed_constant(op, array, bits):
    """Whole numbers as a constant of so many bits each."""
    kind = ir.DataType[HELD[bits]]
    return op.constant(ir.tensor(array.astype(kind.numpy()), dtype=kind))


def unpacked(rows, bits):
    """Numbers of a few bits, low ones first in each byte: (..., bytes) to (..., numbers)."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*rows.shape[:-1], -1)


def _normalized(op, x, skip, scale, epsilon):
    """What the projections read, and the sum that is normalized."""
    total = x if skip is None else op.Add(x, skip)
    return total if scale is None else op.RMSNormalization(total, scale, axis=-1, epsilon=epsilon), total


@contrib(MICROSOFT + "MatMulNBitsMlp")
def mat_mul_n_bits_mlp(
    op, A, skip=None, norm_scale=None, gate_B: Array | None = None, gate_scales=None, gate_bias=None, up_B: Array | None = None,
    up_scales=None, up_bias=None, *, K, N, accuracy_level=0, activation, bits=4, block_size, epsilon=1e-5,
    outputs: Outputs = (True,),
):  # fmt: skip
    if activation != "silu":
        raise Unsupported(f"the activation {activation!r}")
    x, total = _normalized(op, A, skip, norm_scale, epsilon)
    how = {"K": K, "N": N, "bits": bits, "block_size": block_size}
    gate = mat_mul_n_bits(op, x, gate_B, gate_scales, bias=gate_bias, **how)
    return op.Mul(op.Mul(gate, op.Sigmoid(gate)), mat_mul_n_bits(op, x, up_B, up_scales, bias=up_bias, **how)), total


@contrib(MICROSOFT + "MatMulNBitsQkv")
def mat_mul_n_bits_qkv(
    op, A, skip=None, norm_scale=None, q_B: Array | None = None, q_scales=None, q_bias=None, k_B: Array | None = None,
    k_scales=None, k_bias=None, v_B: Array | None = None, v_scales=None, v_bias=None, *, K, Nkv, Nq, accuracy_level=0, bits=4,
    block_size, epsilon=1e-5, outputs: Outputs = (True,),
):  # fmt: skip
    x, total = _normalized(op, A, skip, norm_scale, epsilon)
    how = {"K": K, "bits": bits, "block_size": block_size}
    q = mat_mul_n_bits(op, x, q_B, q_scales, bias=q_bias, N=Nq, **how)
    k, v = (mat_mul_n_bits(op, x, b, s, bias=t, N=Nkv, **how) for b, s, t in ((k_B, k_scales, k_bias), (v_B, v_scales, v_bias)))
    return q, k, v, total


FP4 = np.array([0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25], np.float32)
NF4 = np.array(
    [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1],
    np.float32,
)  # fmt: skip


@contrib(MICROSOFT + "MatMulBnb4")
def mat_mul_bnb4(op, A, B: Array, absmax: Array, *, K, N, block_size, quant_type, training_mode=0, transB=1):
    """Weights (N, K) in bitsandbytes' two tables of 16 numbers, high bits first; they are kept as the numbers they mean."""
    codes = np.stack([B >> 4, B & 15], -1).reshape(-1)[: N * K]
    table = NF4 if quant_type else np.concatenate([FP4, -FP4])
    largest = np.repeat(absmax.reshape(-1).astype(np.float32), block_size)[: N * K]
    weights = op.constant((table[codes] * largest).astype(absmax.dtype).reshape(N, K))
    return op.MatMul(A, op.Transpose(weights, perm=[1, 0]) if transB else weights)


@contrib(MICROSOFT + "GatherBlockQuantized")
def gather_block_quantized(
    op, data: Array, indices, scales, zero_points: Array | None = None, *, bits=4, block_size=128, gather_axis=0, quantize_axis=1
):  # fmt: skip
    """What is looked up is dequantized. Numbers of 2 or 4 bits, which no operator of ONNX picks from, are held in whole bytes."""
    rank = data.ndim
    at, along = gather_axis % rank, quantize_axis % rank
    if at == along or data.dtype.name.startswith("float"):
        raise Unsupported("blocks along the axis that is looked up, or tables of float8 and float4")
    if data.dtype == np.uint8 and bits < 8:
        data = unpacked(data, bits)
        blocks = -(-data.shape[-1] // block_size) if along == rank - 1 else data.shape[-1]
        zero_points = None if zero_points is None else unpacked(zero_points, bits)[..., :blocks]
    middle = 1 << (bits - 1) if data.dtype == np.uint8 else 0
    kind = np.int8 if data.dtype.name.startswith("int") else np.uint8
    codes = op.Gather(op.constant(data.astype(kind)), indices, axis=at)
    table = op.Gather(scales, indices, axis=at)
    if zero_points is not None:
        zeros = op.Gather(op.constant(zero_points.astype(kind)), indices, axis=at)
    else:
        zeros = op.Expand(op.constant(np.array(middle, kind)), op.Shape(table)) if middle else None
    axis = along if along < at else along + rank_of(indices) - 1
    return op.DequantizeLinear(codes, table, zeros, axis=axis, block_size=block_size)
