"""Mixtures of experts: each token is the weighted sum of what the few small networks give that its router chose.

Every expert sees every token and those that were not chosen weigh nothing, so that there is no loop and no size that depends
on the values.
"""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib
from onnxbridge.hub.decompositions.microsoft.packed_weights import HELD, packed_constant, unpacked
from onnxbridge.rules import Array


@contrib(MICROSOFT + "MoE")
def moe(
    op, input, router_probs, fc1_experts_weights, fc1_experts_bias=None, fc2_experts_weights=None, fc2_experts_bias=None,
    fc3_experts_weights=None, fc3_experts_bias=None, *, activation_alpha=1.0, activation_beta=0.0, activation_type="relu", k=1,
    normalize_routing_weights=0, swiglu_fusion=0, swiglu_limit=None, use_sparse_mixer=0,
):  # fmt: skip
    how = {"activation": activation_type, "alpha": activation_alpha, "beta": activation_beta, "limit": swiglu_limit}
    layers = [
        (fc1_experts_weights, fc1_experts_bias), (fc2_experts_weights, fc2_experts_bias), (fc3_experts_weights, fc3_experts_bias),
    ]  # fmt: skip
    if use_sparse_mixer:
        raise Unsupported("the sparse mixer", "its jitter and thresholds are not documented; export with plain routing")
    shares = _shares(op, router_probs, None, k, normalize_routing_weights)
    return _mixed(op, input, shares, layers, fusion=swiglu_fusion, **how)


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
    """Weights in 2, 4 or 8 bits, with a scale for each column or for each block of the numbers that are summed.

    Without weights of its own the router's are normalized in ONNX Runtime, whatever `normalize_routing_weights` says.
    """
    if quant_type != "int" or weights_prepacked > 0 or use_sparse_mixer:
        raise Unsupported("weights of float4 or float8, prepacked ones, and the sparse mixer", "export plain integer weights")
    bits = [b or expert_weight_bits for b in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    given = [
        (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_experts_bias),
        (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_experts_bias),
        (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_experts_bias),
    ]
    layers = [
        (None if codes is None else _weights(op, codes, scales, zeros, n, block_size), bias)
        for (codes, scales, zeros, bias), n in zip(given, bits, strict=True)
    ]
    how = {"activation": activation_type, "alpha": activation_alpha, "beta": activation_beta, "limit": swiglu_limit}
    normalized = normalize_routing_weights or router_weights is None
    return _mixed(op, input, _shares(op, router_probs, router_weights, k, normalized), layers, fusion=swiglu_fusion, **how)


def _weights(op, packed, scales, zeros, bits, block_size):
    """(experts, columns, inputs) in real numbers."""
    if bits not in HELD or scales is None:
        raise Unsupported(f"weights of {bits} bits, or without scales")
    codes = unpacked(packed, bits)
    experts, columns, depth = codes.shape
    block = block_size or depth
    blocks = depth // block
    middle = np.full((experts, columns, blocks), 1 << (bits - 1), np.uint8)
    if zeros is not None:
        middle = unpacked(zeros, bits)
        middle = middle[..., :blocks] if block_size else middle[:, :columns, None]
    table = op.Reshape(scales, [experts, columns, blocks])
    small = (packed_constant(op, v, bits) for v in (codes, middle))
    return op.DequantizeLinear(next(small), table, next(small), axis=2, block_size=block)


def _shares(op, router, weights, k, normalized):
    """What each expert weighs for each token: (tokens, experts), of which `k` are not 0."""
    router = op.Cast(router, to=1)
    best, chosen = op.TopK(router, [k], axis=-1, outputs=2)
    if weights is not None:
        picked = op.GatherElements(op.Cast(weights, to=1), chosen, axis=1)
        if normalized:
            picked = op.Div(picked, op.ReduceSum(picked, [1], keepdims=1))
    elif normalized:
        picked = op.Softmax(best, axis=-1)
    else:
        picked = op.GatherElements(op.Softmax(router, axis=-1), chosen, axis=1)
    return op.ScatterElements(op.Mul(op.Softmax(router, axis=-1), 0.0), chosen, picked, axis=1)


def _mixed(op, x, shares, layers, *, activation, alpha, beta, limit, fusion):
    first, second, third = layers
    width = op.size(x, -1)
    rows = op.Unsqueeze(op.reshape(x, [-1, width]), [0])  # (1, tokens, width)
    inner = _activated(op, _product(op, rows, *first), activation, alpha, beta, limit, fusion, third, rows)
    each = _product(op, inner, *second)  # (experts, tokens, width)
    weight = op.Unsqueeze(op.Transpose(shares, perm=[1, 0]), [2])
    # what was not chosen may be infinite
    each = op.Where(op.Equal(weight, 0.0), 0.0, op.Mul(op.Cast(each, to=1), weight))
    return op.Reshape(op.CastLike(op.ReduceSum(each, [0], keepdims=0), x), op.Shape(x), allowzero=1)


def _product(op, rows, weights, bias):
    y = op.MatMul(rows, op.Transpose(weights, perm=[0, 2, 1]))
    return y if bias is None else op.Add(y, op.Unsqueeze(bias, [1]))


def _activated(op, y, name, alpha, beta, limit, fusion, third, rows):
    """The activation, and what it is multiplied with: by the other half of the columns, or by a product of its own."""
    other = None if third[0] is None else _product(op, rows, *third)
    if name == "swiglu":
        if fusion == 1:
            width = op.size(y, -1)
            if not isinstance(width, int):
                raise Unsupported("weights of an unknown size")
            y, other = (op.Slice(y, [start], [width], [2], [2]) for start in (0, 1))
        elif fusion == 2:
            y, other = op.Split(y, axis=-1, num_outputs=2, outputs=2)
        if other is None:
            raise Unsupported("a gated activation without a gate")
        if limit is not None and np.isfinite(limit):
            y, other = op.Min(y, op.CastLike(limit, y)), op.Clip(other, op.CastLike(-limit, y), op.CastLike(limit, y))
        return op.Mul(op.Mul(y, op.Sigmoid(op.Mul(y, alpha) if alpha != 1.0 else y)), op.Add(other, beta) if beta else other)
    plain = {
        "relu": lambda: op.Relu(y), "gelu": lambda: op.Gelu(y, approximate="tanh"), "silu": lambda: op.Mul(y, op.Sigmoid(y)),
        "identity": lambda: y,
    }  # fmt: skip
    if name not in plain:
        raise Unsupported(f"activation {name!r}")
    return plain[name]() if other is None else op.Mul(plain[name](), other)
