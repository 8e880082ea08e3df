"""Normalization operators, also fused with a residual addition or an embedding lookup."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import arange, dim_size
from onnxbridge.hub.decompositions.microsoft.channels_last import to_first, to_last
from onnxbridge.rules import Outputs


@contrib("SimplifiedLayerNormalization")
def simplified_layer_normalization(op, X, scale, *, axis=-1, epsilon=1e-5, stash_type=1, outputs: Outputs = (True,)):
    if any(outputs[1:]):
        raise Unsupported("the inverse deviation output (training)")
    return op.RMSNormalization(X, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)


@contrib(MICROSOFT + "SkipLayerNormalization")
def skip_layer_normalization(op, input, skip, gamma, beta=None, bias=None, *, epsilon=1e-12, outputs: Outputs = (True,)):
    total = _residual_sum(op, input, skip, bias, outputs)
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), None, None, total


@contrib(MICROSOFT + "SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(op, input, skip, gamma, bias=None, *, epsilon=1e-12, outputs: Outputs = (True,)):
    total = _residual_sum(op, input, skip, bias, outputs)
    return op.RMSNormalization(total, gamma, axis=-1, epsilon=epsilon), None, None, total


def _residual_sum(op, input, skip, bias, outputs):
    if any(outputs[1:3]):
        raise Unsupported("the mean and inverse deviation outputs (training)")
    total = op.Add(input, skip)
    return total if bias is None else op.Add(total, bias)


@contrib(MICROSOFT + "EmbedLayerNormalization")
def embed_layer_normalization(
    op, input_ids, segment_ids=None, word_embedding=None, position_embedding=None, segment_embedding=None, gamma=None, beta=None,
    mask=None, position_ids=None, *, epsilon=1e-12, mask_index_type=0, outputs: Outputs = (True,),
):  # fmt: skip
    """mask_index is the number of ones in each row of the mask."""
    if position_ids is None:
        position_ids = op.Unsqueeze(arange(op, np.array(0, np.int64), dim_size(op, input_ids, 1)), [0])
    total = op.Add(op.Gather(word_embedding, input_ids), op.Gather(position_embedding, position_ids))
    if segment_ids is not None:
        total = op.Add(total, op.Gather(segment_embedding, segment_ids))
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), _mask_index(op, input_ids, mask), total


@contrib(MICROSOFT + "QEmbedLayerNormalization")
def qembed_layer_normalization(
    op, input_ids, segment_ids=None, word_embedding_quant=None, position_embedding_quant=None, segment_embedding=None,
    gamma_quant=None, beta_quant=None, mask=None, word_embedding_scale=None, position_embedding_scale=None,
    segment_embedding_scale=None, gamma_scale=None, beta_scale=None, word_embedding_zero_point=None,
    position_embedding_zero_point=None, segment_embedding_zero_point=None, gamma_zero_point=None, beta_zero_point=None, *,
    epsilon=1e-12, outputs: Outputs = (True,),
):  # fmt: skip
    """Dequantizes only the rows that are looked up."""

    def rows(table, at, scale, zero_point):
        return op.DequantizeLinear(op.Gather(table, at), scale, zero_point)

    at = op.Unsqueeze(arange(op, np.array(0, np.int64), dim_size(op, input_ids, 1)), [0])
    total = op.Add(
        rows(word_embedding_quant, input_ids, word_embedding_scale, word_embedding_zero_point),
        rows(position_embedding_quant, at, position_embedding_scale, position_embedding_zero_point),
    )
    if segment_ids is not None:
        part = rows(segment_embedding, segment_ids, segment_embedding_scale, segment_embedding_zero_point)
        total = op.Add(total, part)
    gamma = op.DequantizeLinear(gamma_quant, gamma_scale, gamma_zero_point)
    beta = op.DequantizeLinear(beta_quant, beta_scale, beta_zero_point)
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), _mask_index(op, input_ids, mask)


def _mask_index(op, input_ids, mask):
    """The number of ones in each row of a mask; 0 without a mask."""
    if mask is None:
        return op.Cast(op.Mul(op.Squeeze(op.Slice(input_ids, [0], [1], [1]), [1]), 0), to=6)
    return op.Cast(op.ReduceSum(mask, [1], keepdims=0), to=6)


@contrib(MICROSOFT + "GatedRMSNorm")
def gated_rms_norm(op, X, scale, gate, *, activation="silu", epsilon=1e-5):
    """Normalizes groups of as many elements as there are scales, in float32."""
    width = scale.shape[0] if scale.shape is not None else None
    if activation not in ("silu", "swish", "sigmoid") or not isinstance(width, int):
        raise Unsupported(f"activation={activation!r}, or scales of dynamic size")
    x, weight, z = (op.Cast(v, to=1) for v in (X, scale, gate))
    groups = op.Reshape(x, [*([0] * (rank_of(X) - 1)), -1, width])
    y = op.Reshape(op.RMSNormalization(groups, weight, axis=-1, epsilon=epsilon), op.Shape(X))
    gated = op.Mul(y, op.Sigmoid(z))
    return op.CastLike(gated if activation == "sigmoid" else op.Mul(gated, z), X)


@contrib(MICROSOFT + "BranchwiseRMSNorm")
def branchwise_rms_norm(op, X, scale=None, *, epsilon=1e-5, num_branches=0):
    """Normalizes each branch of (..., branches, width), or of (..., branches * width) with num_branches, in float32."""
    rank = rank_of(X)
    x = op.Cast(X, to=1)
    if num_branches:
        x = op.Reshape(x, [*([0] * (rank - 1)), num_branches, -1])
    y = op.Div(x, op.Sqrt(op.Add(op.ReduceMean(op.Mul(x, x), [-1]), epsilon)))
    if scale is not None:
        weight = op.Cast(scale, to=1)
        if rank_of(scale) == 1:
            width, scale_size = x.shape[-1], scale.shape[0]
            if not isinstance(width, int) or not isinstance(scale_size, int):
                raise Unsupported("dynamic widths")
            weight = op.Reshape(weight, [-1, width])
        y = op.Mul(y, weight)
    return op.CastLike(op.Reshape(y, op.Shape(X)) if num_branches else y, X)


@contrib(MICROSOFT + "GroupNorm")
def group_norm(op, X, gamma, beta, *, activation, channels_last=1, epsilon=1e-5, groups):
    return _group_norm(op, X, gamma, beta, activation, channels_last, epsilon, groups)


@contrib(MICROSOFT + "SkipGroupNorm")
def skip_group_norm(op, X, gamma, beta, skip, bias=None, *, activation, channels_last=1, epsilon=1e-5, groups):
    if rank_of(skip) == 2:
        skip = op.Unsqueeze(skip, [1, 2] if channels_last else [2, 3])
    total = op.Add(X, skip)
    if bias is not None:
        total = op.Add(total, bias if channels_last else op.Unsqueeze(bias, [0, 2, 3]))
    return _group_norm(op, total, gamma, beta, activation, channels_last, epsilon, groups), total


def _group_norm(op, x, gamma, beta, activation, channels_last, epsilon, groups):
    """Group normalization in float32, followed by SiLU if `activation` is 1."""
    in_float32 = op.Cast(to_first(op, x) if channels_last else x, to=1)
    y = op.GroupNormalization(in_float32, op.Cast(gamma, to=1), op.Cast(beta, to=1), num_groups=groups, epsilon=epsilon)
    y = op.CastLike(op.Mul(y, op.Sigmoid(y)) if activation else y, x)
    return to_last(op, y) if channels_last else y
