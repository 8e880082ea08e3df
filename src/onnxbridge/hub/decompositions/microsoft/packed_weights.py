"""Matrix products with, and lookups in, weights of 2, 4 or 8 bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.rules import Array, Outputs

STORAGE_DTYPES = {2: "UINT2", 4: "UINT4", 8: "UINT8"}


@contrib(MICROSOFT + "MatMulNBits")
def mat_mul_n_bits(
    op, A, B: Array, scales, zero_points: Array | None = None, g_idx: Array | None = None, bias=None, *, K, N, accuracy_level=0,
    bits=4, block_size, weight_prepacked=0,
):  # fmt: skip
    """The weights (N, K) are packed in blocks along K, low bits first. The default zero point is 2**(bits - 1)."""
    if weight_prepacked:
        raise Unsupported("prepacked weights", "export without prepacking, whose layout is specific to one GPU")
    weights = dequantize_blocks(op, B, scales, zero_points, g_idx, K, N, bits, block_size)
    y = op.MatMul(A, op.Transpose(weights, perm=[1, 0]))
    return y if bias is None else op.Add(y, bias)


def dequantize_blocks(op, packed, scales, zero_points, group_of, K, N, bits, block_size):
    """The dequantized weights (N, K), which have a scale and a zero point per block along K."""
    if bits not in STORAGE_DTYPES:
        raise Unsupported(f"{bits}-bit weights")
    blocks = -(-K // block_size)
    quantized = unpack_bits(packed.reshape(N, -1), bits)[:, : blocks * block_size]
    table = op.Reshape(scales, [N, blocks])
    block_zero_points = np.full((N, blocks), 1 << (bits - 1), np.uint8)
    if zero_points is not None and zero_points.dtype != np.uint8:
        return _dequantize_with_float_zero_points(
            op, quantized[:, :K], table, zero_points.reshape(N, blocks), group_of, block_size
        )
    if zero_points is not None:
        block_zero_points = unpack_bits(zero_points.reshape(N, -1), bits)[:, :blocks]
    if group_of is not None:
        at = group_of.reshape(-1)[:K].astype(np.int64)
        shifted = quantized[:, :K].astype(np.int16) - np.take(block_zero_points, at, 1)
        constant = op.constant(shifted.astype(np.int8) if bits < 8 else shifted)
        return op.Mul(op.CastLike(constant, table), op.Gather(table, at, axis=1))
    packed, middle = (packed_constant(op, v, bits) for v in (quantized, block_zero_points))
    dequantized = op.DequantizeLinear(packed, table, middle, axis=1, block_size=block_size)
    return op.Slice(dequantized, [0], [K], [1]) if blocks * block_size > K else dequantized


def _dequantize_with_float_zero_points(op, quantized, table, block_zero_points, group_of, block_size):
    """Dequantizes with floating-point zero points."""
    depth = quantized.shape[1]
    at = np.arange(depth) // block_size if group_of is None else group_of.reshape(-1)[:depth].astype(np.int64)
    shifted = op.Sub(op.CastLike(op.constant(quantized), table), op.Gather(op.constant(block_zero_points), at, axis=1))
    return op.Mul(shifted, op.Gather(table, at, axis=1))


def packed_constant(op, array, bits):
    """Integers as a constant of `bits` bits per element."""
    kind = ir.DataType[STORAGE_DTYPES[bits]]
    return op.constant(ir.tensor(array.astype(kind.numpy()), dtype=kind))


def unpack_bits(rows, bits):
    """Unpacks elements of `bits` bits, low bits first in each byte: (..., bytes) to (..., elements)."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*rows.shape[:-1], -1)


def _normalized_input(op, x, skip, scale, epsilon):
    """The input of the projections, and the residual sum that it is normalized from."""
    total = x if skip is None else op.Add(x, skip)
    return total if scale is None else op.RMSNormalization(total, scale, axis=-1, epsilon=epsilon), total


@contrib(MICROSOFT + "MatMulNBitsMlp")
def mat_mul_n_bits_mlp(
    op, A, skip=None, norm_scale=None, gate_B: Array | None = None, gate_scales=None, gate_bias=None, up_B: Array | None = None,
    up_scales=None, up_bias=None, *, K, N, accuracy_level=0, activation, bits=4, block_size, epsilon=1e-5,
    outputs: Outputs = (True,),
):  # fmt: skip
    if activation != "silu":
        raise Unsupported(f"activation={activation!r}")
    x, total = _normalized_input(op, A, skip, norm_scale, epsilon)
    options = {"K": K, "N": N, "bits": bits, "block_size": block_size}
    gate = mat_mul_n_bits(op, x, gate_B, gate_scales, bias=gate_bias, **options)
    return op.Mul(op.Mul(gate, op.Sigmoid(gate)), mat_mul_n_bits(op, x, up_B, up_scales, bias=up_bias, **options)), total


@contrib(MICROSOFT + "MatMulNBitsQkv")
def mat_mul_n_bits_qkv(
    op, A, skip=None, norm_scale=None, q_B: Array | None = None, q_scales=None, q_bias=None, k_B: Array | None = None,
    k_scales=None, k_bias=None, v_B: Array | None = None, v_scales=None, v_bias=None, *, K, Nkv, Nq, accuracy_level=0, bits=4,
    block_size, epsilon=1e-5, outputs: Outputs = (True,),
):  # fmt: skip
    x, total = _normalized_input(op, A, skip, norm_scale, epsilon)
    options = {"K": K, "bits": bits, "block_size": block_size}
    q = mat_mul_n_bits(op, x, q_B, q_scales, bias=q_bias, N=Nq, **options)
    k, v = (
        mat_mul_n_bits(op, x, b, s, bias=t, N=Nkv, **options) for b, s, t in ((k_B, k_scales, k_bias), (v_B, v_scales, v_bias))
    )
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
    """Weights (N, K) of bitsandbytes in FP4 or NF4, high bits first; they are dequantized at conversion."""
    quantized = np.stack([B >> 4, B & 15], -1).reshape(-1)[: N * K]
    table = NF4 if quant_type else np.concatenate([FP4, -FP4])
    magnitudes = np.repeat(absmax.reshape(-1).astype(np.float32), block_size)[: N * K]
    weights = op.constant((table[quantized] * magnitudes).astype(absmax.dtype).reshape(N, K))
    return op.MatMul(A, op.Transpose(weights, perm=[1, 0]) if transB else weights)


@contrib(MICROSOFT + "GatherBlockQuantized")
def gather_block_quantized(
    op, data: Array, indices, scales, zero_points: Array | None = None, *, bits=4, block_size=128, gather_axis=0, quantize_axis=1
):  # fmt: skip
    """Dequantizes the rows that are looked up. ONNX's Gather has no 2- and 4-bit types, so the table is stored in bytes."""
    rank = data.ndim
    at, along = gather_axis % rank, quantize_axis % rank
    if at == along or data.dtype.name.startswith("float"):
        raise Unsupported("blocks along gather_axis, or float8 and float4 tables")
    if data.dtype == np.uint8 and bits < 8:
        data = unpack_bits(data, bits)
        blocks = -(-data.shape[-1] // block_size) if along == rank - 1 else data.shape[-1]
        zero_points = None if zero_points is None else unpack_bits(zero_points, bits)[..., :blocks]
    middle = 1 << (bits - 1) if data.dtype == np.uint8 else 0
    kind = np.int8 if data.dtype.name.startswith("int") else np.uint8
    quantized = op.Gather(op.constant(data.astype(kind)), indices, axis=at)
    table = op.Gather(scales, indices, axis=at)
    if zero_points is not None:
        block_zero_points = op.Gather(op.constant(zero_points.astype(kind)), indices, axis=at)
    else:
        block_zero_points = op.Expand(op.constant(np.array(middle, kind)), op.Shape(table)) if middle else None
    axis = along if along < at else along + rank_of(indices) - 1
    return op.DequantizeLinear(quantized, table, block_zero_points, axis=axis, block_size=block_size)
