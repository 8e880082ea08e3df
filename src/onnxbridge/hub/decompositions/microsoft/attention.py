"""ONNX Runtime's attention operators, with the projections inside or outside of the node."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import (
    attention_scale,
    causal_mask,
    dim_size,
    merge_heads,
    split_heads,
    weighted_values,
)
from onnxbridge.hub.decompositions.microsoft.masks import padding_mask
from onnxbridge.hub.decompositions.microsoft.quant import mat_mul_integer_to_float
from onnxbridge.rules import Outputs


def _attend(op, q, k, v, mask, bias, *, past, unidirectional, filter_value, scale):
    """Attention of (batch, heads, sequence, size); as in ONNX Runtime, masked scores get a large negative bias."""
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), attention_scale(op, q, scale))
    keys = dim_size(op, k, 2)
    if mask is not None:
        scores = op.Add(scores, padding_mask(op, mask, q, keys, filter_value))
    if unidirectional:
        scores = op.Add(scores, causal_mask(op, dim_size(op, q, 2), keys, _past_length(op, past), filter_value, q))
    if bias is not None:
        scores = op.Add(scores, bias)
    return merge_heads(op, weighted_values(op, scores, v))


def _past_length(op, past):
    """The number of keys in the past (batch, heads, keys, size), 0 if there is none."""
    return np.array(0, np.int64) if past is None else dim_size(op, past, 2)


def _self_attention(op, product, mask, past, bias, outputs, *, num_heads, sizes=None, **how):
    """Attention of a packed QKV projection; also returns the present keys and values if requested."""
    widths = op.constant(np.array(sizes, np.int64)) if sizes else None
    parts = op.Split(product, widths, axis=-1, outputs=3, num_outputs=None if sizes else 3)
    q, k, v = (split_heads(op, p, num_heads) for p in parts)
    past_parts = [None, None]
    if past is not None:
        past_parts = [op.Squeeze(p, [0]) for p in op.Split(past, axis=0, num_outputs=2, outputs=2)]
        k, v = op.Concat(past_parts[0], k, axis=2), op.Concat(past_parts[1], v, axis=2)
    y = _attend(op, q, k, v, mask, bias, past=past_parts[0], **how)
    return (y, op.Concat(op.Unsqueeze(k, [0]), op.Unsqueeze(v, [0]), axis=0)) if len(outputs) > 1 else y


@contrib(MICROSOFT + "Attention")
def attention(
    op, input, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, *, do_rotary=0,
    mask_filter_value=-10000.0, num_heads, past_present_share_buffer=0, qkv_hidden_sizes=None, rotary_embedding_dim=0, scale=None,
    unidirectional=0, outputs: Outputs = (True,),
):  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise Unsupported("do_rotary or past_present_share_buffer")
    product = op.MatMul(input, weights)
    product = product if bias is None else op.Add(product, bias)
    return _self_attention(
        op, product, mask_index, past, attention_bias, outputs, num_heads=num_heads, sizes=qkv_hidden_sizes,
        unidirectional=unidirectional, filter_value=mask_filter_value, scale=scale,
    )  # fmt: skip


@contrib(MICROSOFT + "QAttention")
def qattention(
    op, input, weight, bias, input_scale, weight_scale, mask_index=None, input_zero_point=None, weight_zero_point=None, past=None,
    *, do_rotary=0, mask_filter_value=-10000.0, num_heads, past_present_share_buffer=0, scale=None, unidirectional=0,
    outputs: Outputs = (True,),
):  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise Unsupported("do_rotary or past_present_share_buffer")
    product = mat_mul_integer_to_float(op, input, weight, input_scale, weight_scale, input_zero_point, weight_zero_point, bias)
    return _self_attention(
        op, product, mask_index, past, None, outputs, num_heads=num_heads, unidirectional=unidirectional,
        filter_value=mask_filter_value, scale=scale,
    )  # fmt: skip


@contrib(MICROSOFT + "MultiHeadAttention")
def multi_head_attention(
    op, query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
    past_sequence_length=None, cache_indirection=None, *, mask_filter_value=-10000.0, num_heads, scale=None, unidirectional=0,
    outputs: Outputs = (True,),
):  # fmt: skip
    if past_sequence_length is not None or cache_indirection is not None or any(outputs[3:]):
        raise Unsupported("past_sequence_length, cache_indirection, or the scores as an output")
    projections = _unpack_qkv(op, query, key, value)
    if bias is not None:
        if any(rank_of(v) == 5 for v in (query, key) if v is not None):
            raise Unsupported("bias with packed inputs")
        projections = _add_bias(op, projections, bias)
    q, k, v = (split_heads(op, x, num_heads) if rank_of(x) == 3 else x for x in projections)
    if past_key is not None:
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    y = _attend(
        op, q, k, v, key_padding_mask, attention_bias, past=past_key, unidirectional=unidirectional,
        filter_value=mask_filter_value, scale=scale,
    )  # fmt: skip
    return (y, k, v) if len(outputs) > 1 else y


def _unpack_qkv(op, query, key, value):
    """Query, key and value, each (batch, sequence, heads * size), or split into heads if given so or packed."""
    if key is None:
        return _unpack(op, query, 3)
    if value is None:
        return (query, *_unpack(op, key, 2))
    return query, key, value


def _unpack(op, x, parts):
    """Splits (batch, sequence, heads, parts, size) into `parts` values (batch, heads, sequence, size)."""
    if rank_of(x) != 5:
        raise Unsupported("packed inputs must have rank 5")
    split = op.Split(op.Transpose(x, perm=[3, 0, 2, 1, 4]), axis=0, num_outputs=parts, outputs=parts)
    return tuple(op.Squeeze(p, [0]) for p in split)


def _add_bias(op, projections, bias):
    """Adds to each projection its part of the bias; keys and values that are split into heads already include it."""
    widths = [v.shape[-1] if rank_of(v) == 3 else None for v in projections]
    if not all(isinstance(w, int) for v, w in zip(projections, widths, strict=True) if rank_of(v) == 3):
        raise Unsupported("dynamic hidden sizes")
    ends = np.cumsum([0, *(w or 0 for w in widths)])
    return [
        v if w is None else op.Add(v, op.Slice(bias, [int(a)], [int(b)], [0]))
        for v, w, a, b in zip(projections, widths, ends, ends[1:], strict=False)
    ]


@contrib(MICROSOFT + "GatedRelativePositionBias")
def gated_relative_position_bias(op, query_layer, query_bias, rel_pos, weight, bias, eco_a, token_offset=None, *, num_heads):
    """The relative position bias, weighted for each query by two gates computed from a projection of the query."""
    if token_offset is not None:
        raise Unsupported("token_offset (packed sequences)", "optimize the model without packing mode")
    rows = split_heads(op, op.Add(query_layer, query_bias), num_heads)
    both = op.Add(op.MatMul(rows, weight), bias)
    halves = op.Split(both, axis=-1, num_outputs=2, outputs=2)
    u, r = (op.Sigmoid(op.ReduceSum(half, [-1], keepdims=1)) for half in halves)
    return op.Mul(op.Add(op.Mul(u, op.Sub(op.Mul(r, eco_a), 1.0)), 2.0), rel_pos)
