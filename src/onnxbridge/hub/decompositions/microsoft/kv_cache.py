"""Attention over keys and values that are kept from one step of a generation to the next."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib
from onnxbridge.hub.decompositions.microsoft.attention_heads import count, factor, heads, joined, places
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
    """Each row has seen `seqlens_k` + 1 tokens with those of this step, the first of which follows what it has kept.

    A step that is as long as all tokens is the first one: nothing that is kept counts, and shorter rows are padded at their end.
    """
    if sliding_window_cache or any(outputs[3:]) or {k_quant_type, v_quant_type} != {"NONE"}:
        raise Unsupported("a cache that is quantized or holds a window, or the scores as an output")
    q, k, v = _projected(op, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None:
        q = op.RMSNormalization(q, q_norm_weight, axis=-1, epsilon=qk_norm_epsilon)
        k = op.RMSNormalization(k, k_norm_weight, axis=-1, epsilon=qk_norm_epsilon)
    step, total = count(op, q, 2), op.Cast(op.Reshape(total_sequence_length, op.dims([])), to=7)
    seen = op.Add(op.Cast(op.Reshape(seqlens_k, [-1]), to=7), 1)
    kept = op.Where(op.Equal(step, total), ZERO, op.Sub(seen, step))  # (batch,)
    if do_rotary:
        at = op.Add(op.Unsqueeze(kept, [1]), op.Unsqueeze(places(op, ZERO, step), [0]))
        how = {"interleaved": rotary_interleaved, "rotary_embedding_dim": _rotated(q, cos_cache)}
        at = at if position_ids is None else position_ids
        q, k = (op.RotaryEmbedding(x, cos_cache, sin_cache, at, **how) for x in (q, k))
    if past_key is not None:
        k, v = (_grown(op, past, x, kept, step, total) for past, x in ((past_key, k), (past_value, v)))
    keys = count(op, k, 2)
    scores = op.Mul(_scores(op, q, k, num_heads, kv_num_heads), factor(op, q, scale))
    if softcap:
        scores = op.Mul(op.Tanh(op.Div(scores, softcap)), softcap)
    if attention_bias is not None:
        room = op.Sub(keys, count(op, attention_bias, 3))  # a cache may be longer than what is in use
        ends = op.Concat(np.zeros(7, np.int64), op.Unsqueeze(room, [0]), axis=0)
        scores = op.Add(scores, op.Pad(attention_bias, ends))
    window = local_window_size if causal else -1
    scores = op.Where(_visible(op, kept, seen, step, keys, causal, window), scores, op.CastLike(float("-inf"), scores))
    shares = _shares(op, scores, head_sink, smooth_softmax)
    return joined(op, _weighted(op, shares, v, num_heads, kv_num_heads)), k, v


def _projected(op, query, key, value, num_heads, kv_num_heads):
    """(batch, heads, sequence, size) of each; they may come side by side in one."""
    if key is not None:
        return heads(op, query, num_heads), heads(op, key, kv_num_heads), heads(op, value, kv_num_heads)
    whole = heads(op, query, num_heads + 2 * kv_num_heads)
    return op.Split(whole, np.array([num_heads, kv_num_heads, kv_num_heads], np.int64), axis=1, outputs=3)


def _rotated(q, cos_cache):
    """How much of a head is rotated: 0 for the whole of it."""
    size, half = q.shape[-1], cos_cache.shape[-1]
    if not isinstance(size, int) or not isinstance(half, int):
        raise Unsupported("sizes that are not known")
    return 0 if 2 * half == size else 2 * half


def _grown(op, past, new, kept, step, total):
    """What is kept: each row's first `kept` of the past, then the new ones, then zeros."""
    before = count(op, past, 2)
    room = op.Sub(op.Max(before, total), before)
    ends = op.Concat(np.zeros(6, np.int64), op.Unsqueeze(room, [0]), np.zeros(1, np.int64), axis=0)
    places_ = op.Unsqueeze(places(op, ZERO, before), [0])
    old = op.Where(op.Unsqueeze(op.Less(places_, op.Unsqueeze(kept, [1])), [1, 3]), past, op.CastLike(0.0, past))
    return op.TensorScatter(op.Pad(old, ends), new, kept, axis=2)


def _scores(op, q, k, num_heads, kv_num_heads):
    """Queries times keys, of which each is shared by a group of heads: (batch, heads, queries, keys)."""
    turned = op.Transpose(k, perm=[0, 1, 3, 2])
    if num_heads == kv_num_heads:
        return op.MatMul(q, turned)
    grouped = op.reshape(q, [op.size(q, 0), kv_num_heads, -1, op.size(q, 3)])
    return op.reshape(op.MatMul(grouped, turned), [op.size(q, 0), num_heads, op.size(q, 2), op.size(k, 2)])


def _weighted(op, shares, v, num_heads, kv_num_heads):
    if num_heads == kv_num_heads:
        return op.MatMul(shares, v)
    grouped = op.reshape(shares, [op.size(shares, 0), kv_num_heads, -1, op.size(v, 2)])
    return op.reshape(op.MatMul(grouped, v), [op.size(shares, 0), num_heads, op.size(shares, 2), op.size(v, 3)])


def _visible(op, kept, seen, step, keys, causal, window):
    """Which keys each query sees: (batch, 1, queries, keys)."""
    at = op.Unsqueeze(places(op, ZERO, keys), [0, 1])
    if not causal:
        return op.Unsqueeze(op.Less(at, op.Unsqueeze(seen, [1, 2])), [1])
    own = op.Add(op.Unsqueeze(kept, [1, 2]), op.Unsqueeze(places(op, ZERO, step), [0, 2]))
    visible = op.LessOrEqual(at, own)
    if window > 0:
        visible = op.And(visible, op.Greater(at, op.Sub(own, window)))
    return op.Unsqueeze(visible, [1])


def _shares(op, scores, head_sink, smooth):
    """Softmax, with one more score for each head that takes a share and is left out."""
    if head_sink is None and not smooth:
        return op.Softmax(scores, axis=-1)
    sizes = [op.size(scores, i) for i in range(3)]
    sink = op.CastLike(0.0, scores) if head_sink is None else op.Reshape(head_sink, [1, -1, 1, 1])
    more = op.Concat(scores, op.Expand(sink, op.dims([*sizes, 1])), axis=-1)
    return op.Slice(op.Softmax(more, axis=-1), [0], [-1], [3])
