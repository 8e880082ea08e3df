"""GroupQueryAttention with a KV cache."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib
from onnxbridge.hub.decompositions.microsoft.attention_heads import arange, attention_scale, dim_size, merge_heads, split_heads
from onnxbridge.rules import Outputs

ZERO = np.array(0, np.int64)


@contrib(MICROSOFT + "GroupQueryAttention")
def group_query_attention(
    op, query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None, total_sequence_length=None, cos_cache=None,
    sin_cache=None, position_ids=None, attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None,
    k_norm_weight=None, *, causal=1, do_rotary=0, k_quant_type="NONE", kv_cache_bit_width=0, kv_num_heads, local_window_size=-1,
    num_heads, qk_norm_epsilon=1e-6, qk_output=0, rotary_interleaved=0, scale=0.0, sliding_window_cache=0, smooth_softmax=0,
    softcap=0.0, v_quant_type="NONE", outputs: Outputs = (True,),
):  # fmt: skip
    """`seqlens_k` + 1 is the number of tokens of each sequence, those of this step included.

    If the step has as many tokens as the whole sequence, it is the prompt: the past is ignored, and shorter sequences are padded
    at the end.
    """
    if sliding_window_cache or any(outputs[3:]) or {k_quant_type, v_quant_type} != {"NONE"}:
        raise Unsupported("a quantized or sliding-window cache, or the scores as an output")
    q, k, v = _unpack_qkv(op, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None:
        q = op.RMSNormalization(q, q_norm_weight, axis=-1, epsilon=qk_norm_epsilon)
        k = op.RMSNormalization(k, k_norm_weight, axis=-1, epsilon=qk_norm_epsilon)
    step, total = dim_size(op, q, 2), op.Cast(op.Reshape(total_sequence_length, op.dims([])), to=7)
    sequence_length = op.Add(op.Cast(op.Reshape(seqlens_k, [-1]), to=7), 1)
    past_length = op.Where(op.Equal(step, total), ZERO, op.Sub(sequence_length, step))  # (batch,)
    if do_rotary:
        positions = op.Add(op.Unsqueeze(past_length, [1]), op.Unsqueeze(arange(op, ZERO, step), [0]))
        rotary_options = {"interleaved": rotary_interleaved, "rotary_embedding_dim": _rotary_dim(q, cos_cache)}
        positions = positions if position_ids is None else position_ids
        q, k = (op.RotaryEmbedding(x, cos_cache, sin_cache, positions, **rotary_options) for x in (q, k))
    if past_key is not None:
        k, v = (_update_cache(op, past, x, past_length, step, total) for past, x in ((past_key, k), (past_value, v)))
    keys = dim_size(op, k, 2)
    scores = op.Mul(_scores(op, q, k, num_heads, kv_num_heads), attention_scale(op, q, scale))
    if softcap:
        scores = op.Mul(op.Tanh(op.Div(scores, softcap)), softcap)
    if attention_bias is not None:
        unused_length = op.Sub(keys, dim_size(op, attention_bias, 3))  # the cache may be longer than its used part
        end_pads = op.Concat(np.zeros(7, np.int64), op.Unsqueeze(unused_length, [0]), axis=0)
        scores = op.Add(scores, op.Pad(attention_bias, end_pads))
    window = local_window_size if causal else -1
    scores = op.Where(
        _visible(op, past_length, sequence_length, step, keys, causal, window), scores, op.CastLike(float("-inf"), scores)
    )
    probabilities = _softmax_with_sink(op, scores, head_sink, smooth_softmax)
    return merge_heads(op, _weighted(op, probabilities, v, num_heads, kv_num_heads)), k, v


def _unpack_qkv(op, query, key, value, num_heads, kv_num_heads):
    """Query, key and value as (batch, heads, sequence, size), from three inputs or one packed input."""
    if key is not None:
        return split_heads(op, query, num_heads), split_heads(op, key, kv_num_heads), split_heads(op, value, kv_num_heads)
    packed = split_heads(op, query, num_heads + 2 * kv_num_heads)
    return op.Split(packed, np.array([num_heads, kv_num_heads, kv_num_heads], np.int64), axis=1, outputs=3)


def _rotary_dim(q, cos_cache):
    """The rotary_embedding_dim: the number of rotated elements of a head, 0 for all."""
    size, half = q.shape[-1], cos_cache.shape[-1]
    if not isinstance(size, int) or not isinstance(half, int):
        raise Unsupported("dynamic head sizes")
    return 0 if 2 * half == size else 2 * half


def _update_cache(op, past, new, past_length, step, total):
    """The updated cache: the first `past_length` entries of the past, then the new ones, then zeros."""
    cache_length = dim_size(op, past, 2)
    unused_length = op.Sub(op.Max(cache_length, total), cache_length)
    end_pads = op.Concat(np.zeros(6, np.int64), op.Unsqueeze(unused_length, [0]), np.zeros(1, np.int64), axis=0)
    positions = op.Unsqueeze(arange(op, ZERO, cache_length), [0])
    past_part = op.Where(op.Unsqueeze(op.Less(positions, op.Unsqueeze(past_length, [1])), [1, 3]), past, op.CastLike(0.0, past))
    return op.TensorScatter(op.Pad(past_part, end_pads), new, past_length, axis=2)


def _scores(op, q, k, num_heads, kv_num_heads):
    """Queries times keys, each shared by a group of heads: (batch, heads, queries, keys)."""
    transposed_keys = op.Transpose(k, perm=[0, 1, 3, 2])
    if num_heads == kv_num_heads:
        return op.MatMul(q, transposed_keys)
    grouped = op.reshape(q, [op.size(q, 0), kv_num_heads, -1, op.size(q, 3)])
    return op.reshape(op.MatMul(grouped, transposed_keys), [op.size(q, 0), num_heads, op.size(q, 2), op.size(k, 2)])


def _weighted(op, probabilities, v, num_heads, kv_num_heads):
    if num_heads == kv_num_heads:
        return op.MatMul(probabilities, v)
    grouped = op.reshape(probabilities, [op.size(probabilities, 0), kv_num_heads, -1, op.size(v, 2)])
    return op.reshape(op.MatMul(grouped, v), [op.size(probabilities, 0), num_heads, op.size(probabilities, 2), op.size(v, 3)])


def _visible(op, past_length, sequence_length, step, keys, causal, window):
    """Mask of the keys that are visible to each query: (batch, 1, queries, keys)."""
    key_positions = op.Unsqueeze(arange(op, ZERO, keys), [0, 1])
    if not causal:
        return op.Unsqueeze(op.Less(key_positions, op.Unsqueeze(sequence_length, [1, 2])), [1])
    query_positions = op.Add(op.Unsqueeze(past_length, [1, 2]), op.Unsqueeze(arange(op, ZERO, step), [0, 2]))
    visible = op.LessOrEqual(key_positions, query_positions)
    if window > 0:
        visible = op.And(visible, op.Greater(key_positions, op.Sub(query_positions, window)))
    return op.Unsqueeze(visible, [1])


def _softmax_with_sink(op, scores, head_sink, smooth):
    """Softmax; with an attention sink, an additional score per head takes part and is dropped from the result."""
    if head_sink is None and not smooth:
        return op.Softmax(scores, axis=-1)
    sizes = [op.size(scores, i) for i in range(3)]
    sink = op.CastLike(0.0, scores) if head_sink is None else op.Reshape(head_sink, [1, -1, 1, 1])
    with_sink = op.Concat(scores, op.Expand(sink, op.dims([*sizes, 1])), axis=-1)
    return op.Slice(op.Softmax(with_sink, axis=-1), [0], [-1], [3])
