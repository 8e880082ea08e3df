"""Mixture-of-experts layers.

Every expert computes every token, and the outputs of experts that the router did not select get the weight 0. That avoids loops
and data-dependent shapes.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib
from onnxbridge.hub.decompositions.microsoft.packed_weights import STORAGE_DTYPES, packed_constant, unpack_bits
from onnxbridge.rules import Array


@contrib(MICROSOFT + "MoE")
def moe(
    op, input, router_probs, fc1_experts_weights, fc1_experts_bias=None, fc2_experts_weights=None, fc2_experts_bias=None,
    fc3_experts_weights=None, fc3_experts_bias=None, *, activation_alpha=1.0, activation_beta=0.0, activation_type="relu", k=1,
    normalize_routing_weights=0, swiglu_fusion=0, swiglu_limit=None, use_sparse_mixer=0,
):  # fmt: skip
    options = {"activation": activation_type, "alpha": activation_alpha, "beta": activation_beta, "limit": swiglu_limit}
    layers = [
        (fc1_experts_weights, fc1_experts_bias), (fc2_experts_weights, fc2_experts_bias), (fc3_experts_weights, fc3_experts_bias),
    ]  # fmt: skip
    if use_sparse_mixer:
        raise Unsupported("use_sparse_mixer", "export without the sparse mixer, whose jitter and thresholds are undocumented")
    routing_weights = _routing_weights(op, router_probs, None, k, normalize_routing_weights)
    return _run_experts(op, input, routing_weights, layers, fusion=swiglu_fusion, **options)


@contrib(MICROSOFT + "QMoE")
def qmoe(
    op, input, router_probs, fc1_experts_weights: Array, fc1_scales=None, fc1_experts_bias=None,
    fc2_experts_weights: Array | None = None, fc2_scales=None, fc2_experts_bias=None, fc3_experts_weights: Array | None = None,
    fc3_scales=None, fc3_experts_bias=None, fc1_zero_points: Array | None = None, fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None, router_weights=None, fc1_global_scale=None, fc2_global_scale=None, fc1_act_scale=None,
    fc2_act_scale=None, fc1_act_block_scale=None, fc2_act_block_scale=None, *, accuracy_level=0, activation_alpha=1.0,
    activation_beta=0.0, activation_type="relu", block_size=None, expert_weight_bits=4, fc1_expert_weight_bits=None,
    fc2_expert_weight_bits=None, fc3_expert_weight_bits=None, k=1, normalize_routing_weights=0, quant_type="int", swiglu_fusion=0,
    swiglu_limit=None, use_sparse_mixer=0, weights_prepacked=-1,
):  # fmt: skip
    """Weights of 2, 4 or 8 bits with a scale per column, or per block along the reduced axis.

    As in ONNX Runtime, without `router_weights` the routing weights are normalized whatever `normalize_routing_weights` is.
    """
    if quant_type != "int" or weights_prepacked > 0 or use_sparse_mixer:
        raise Unsupported("float4, float8 or prepacked weights, or use_sparse_mixer", "export integer weights without prepacking")
    bits = [b or expert_weight_bits for b in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    stored = [
        (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias),
        (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias),
        (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_experts_bias),
    ]
    layers = [
        (None if quantized is None else _weights(op, quantized, scales, zeros, n, block_size), bias)
        for (quantized, scales, zeros, bias), n in zip(stored, bits, strict=True)
    ]
    options = {"activation": activation_type, "alpha": activation_alpha, "beta": activation_beta, "limit": swiglu_limit}
    normalized = normalize_routing_weights or router_weights is None
    routing_weights = _routing_weights(op, router_probs, router_weights, k, normalized)
    return _run_experts(op, input, routing_weights, layers, fusion=swiglu_fusion, **options)


def _weights(op, packed, scales, zeros, bits, block_size):
    """The dequantized weights (experts, columns, inputs)."""
    if bits not in STORAGE_DTYPES or scales is None:
        raise Unsupported(f"{bits}-bit weights, or weights without scales")
    quantized = unpack_bits(packed, bits)
    experts, columns, depth = quantized.shape
    block = block_size or depth
    blocks = depth // block
    zero_points = np.full((experts, columns, blocks), 1 << (bits - 1), np.uint8)
    if zeros is not None:
        zero_points = unpack_bits(zeros, bits)
        zero_points = zero_points[..., :blocks] if block_size else zero_points[:, :columns, None]
    block_scales = op.Reshape(scales, [experts, columns, blocks])
    constants = (packed_constant(op, v, bits) for v in (quantized, zero_points))
    return op.DequantizeLinear(next(constants), block_scales, next(constants), axis=2, block_size=block)


def _routing_weights(op, router, weights, k, normalized):
    """The routing weights (tokens, experts), of which `k` per token are not 0."""
    router = op.Cast(router, to=1)
    top_scores, top_experts = op.TopK(router, [k], axis=-1, outputs=2)
    if weights is not None:
        top_weights = op.GatherElements(op.Cast(weights, to=1), top_experts, axis=1)
        if normalized:
            top_weights = op.Div(top_weights, op.ReduceSum(top_weights, [1], keepdims=1))
    elif normalized:
        top_weights = op.Softmax(top_scores, axis=-1)
    else:
        top_weights = op.GatherElements(op.Softmax(router, axis=-1), top_experts, axis=1)
    return op.ScatterElements(op.Mul(op.Softmax(router, axis=-1), 0.0), top_experts, top_weights, axis=1)


def _run_experts(op, x, routing_weights, layers, *, activation, alpha, beta, limit, fusion):
    first, second, third = layers
    width = op.size(x, -1)
    rows = op.Unsqueeze(op.reshape(x, [-1, width]), [0])  # (1, tokens, width)
    hidden = _activation(op, _product(op, rows, *first), activation, alpha, beta, limit, fusion, third, rows)
    expert_outputs = _product(op, hidden, *second)  # (experts, tokens, width)
    weight = op.Unsqueeze(op.Transpose(routing_weights, perm=[1, 0]), [2])
    # outputs of experts that were not selected may be infinite
    expert_outputs = op.Where(op.Equal(weight, 0.0), 0.0, op.Mul(op.Cast(expert_outputs, to=1), weight))
    return op.Reshape(op.CastLike(op.ReduceSum(expert_outputs, [0], keepdims=0), x), op.Shape(x), allowzero=1)


def _product(op, rows, weights, bias):
    y = op.MatMul(rows, op.Transpose(weights, perm=[0, 2, 1]))
    return y if bias is None else op.Add(y, op.Unsqueeze(bias, [1]))


def _activation(op, y, name, alpha, beta, limit, fusion, third, rows):
    """The activation, multiplied with the gate: the other half of the columns, or the product with `third`."""
    gate = None if third[0] is None else _product(op, rows, *third)
    if name == "swiglu":
        if fusion == 1:
            width = op.size(y, -1)
            if not isinstance(width, int):
                raise Unsupported("weights of dynamic size")
            y, gate = (op.Slice(y, [start], [width], [2], [2]) for start in (0, 1))
        elif fusion == 2:
            y, gate = op.Split(y, axis=-1, num_outputs=2, outputs=2)
        if gate is None:
            raise Unsupported("swiglu without a gate")
        if limit is not None and np.isfinite(limit):
            y, gate = op.Min(y, op.CastLike(limit, y)), op.Clip(gate, op.CastLike(-limit, y), op.CastLike(limit, y))
        return op.Mul(op.Mul(y, op.Sigmoid(op.Mul(y, alpha) if alpha != 1.0 else y)), op.Add(gate, beta) if beta else gate)
    activations = {
        "relu": lambda: op.Relu(y), "gelu": lambda: op.Gelu(y, approximate="tanh"), "silu": lambda: op.Mul(y, op.Sigmoid(y)),
        "identity": lambda: y,
    }  # fmt: skip
    if name not in activations:
        raise Unsupported(f"activation {name!r}")
    return activations[name]() if gate is None else op.Mul(activations[name](), gate)
