"""Attention and rotary position embedding."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.rules import Outputs
from onnxbridge.runtime.executor.numpy.dtypes import dtype_of, wide, widened
from onnxbridge.runtime.executor.numpy.ops import rule
from onnxbridge.runtime.executor.numpy.ops.activation import softmax_in_steps


def _heads(x, count):
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _grouped_matmul(a, b):
    """The product of a (B, H, S, D) with b (B, G, D, T), where H/G heads of a share a head of b; sums are rounded once."""
    batch, heads, rows = a.shape[:3]
    groups, dtype = b.shape[1], a.dtype
    claim((batch, heads, rows, b.shape[3]), dtype)
    a, b = wide(a), wide(b)
    if heads == groups:
        return np.matmul(a, b).astype(dtype, copy=False)
    y = np.matmul(a.reshape(batch, groups, heads // groups, *a.shape[2:]), b[:, :, None])
    return y.reshape(batch, heads, rows, b.shape[3]).astype(dtype, copy=False)


def _visible(queries, keys, past, lengths, is_causal, left, right):
    """Which keys each query may attend to, as (batch or 1, 1, queries, keys); None for all of them."""
    if not is_causal and left < 0 and right < 0 and lengths is None:
        return None
    lengths = None if lengths is None else lengths.reshape(-1, 1, 1, 1)
    position = np.arange(queries)[:, None] + (past if lengths is None else lengths - queries)
    key = np.arange(keys)
    seen = np.ones((1, 1, queries, keys), bool)
    if is_causal:
        seen = seen & (key <= position)
    if left >= 0:
        seen = seen & (key >= position - left)
    if right >= 0:
        seen = seen & (key <= position + right)
    return seen if lengths is None else seen & (key < lengths)


def _bias(attn_mask, seen, keys, dtype):
    """The bias of the scores: the mask, -inf after its end and where attention is not allowed; None for nothing."""
    bias = None
    if attn_mask is not None:
        bias = np.where(attn_mask, 0, -np.inf) if attn_mask.dtype == np.bool_ else attn_mask
        bias = bias.astype(dtype)
        missing = keys - bias.shape[-1]
        if missing > 0:
            behind = np.full((*bias.shape[:-1], missing), -np.inf, dtype)
            bias = np.concatenate((bias, behind), -1)
    if seen is None:
        return bias
    hidden = np.where(seen, 0, -np.inf).astype(dtype)
    return hidden if bias is None else bias + hidden


def _weights(scores, bias):
    """The softmax of the scores; zeros for fully masked queries."""
    weights = softmax_in_steps(scores)
    if bias is None:
        return weights
    fully_masked = np.isneginf(np.max(bias, axis=-1, keepdims=True, initial=-np.inf))
    return np.where(fully_masked, weights.dtype.type(0), weights)


@rule("Attention")
def attention(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    left_window_size=-1,
    q_num_heads=None,
    qk_matmul_output_mode=0,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
    outputs: Outputs = (True,),
):
    flat = Q.ndim == 3
    q, k, v = (_heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)) if flat else (Q, K, V)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        k, v = np.concatenate((past_key, k), axis=2), np.concatenate((past_value, v), axis=2)
    # Both factors are multiplied by the root of the scale, so that their product stays in range.
    kind = q.dtype.type
    root = kind(math.sqrt(scale if scale is not None else 1 / math.sqrt(q.shape[-1])))
    scores = _grouped_matmul(q * root, (k * root).swapaxes(-1, -2))
    stages = [scores]
    if softcap:
        scores = np.tanh(scores / kind(softcap)) * kind(softcap)
    stages.append(scores)
    seen = _visible(q.shape[2], k.shape[2], past, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size)
    bias = _bias(attn_mask, seen, k.shape[2], q.dtype)
    if bias is not None:
        scores = scores + bias
    stages.append(scores)
    weights = _weights(scores if softmax_precision is None else scores.astype(dtype_of(softmax_precision)), bias)
    weights = weights.astype(q.dtype, copy=False)
    stages.append(weights)
    y = _grouped_matmul(weights, v)
    if flat:
        y = y.transpose(0, 2, 1, 3).reshape(*Q.shape[:2], -1)
    return (y, k, v, stages[qk_matmul_output_mode]) if len(outputs) > 1 else y


@rule("ai.onnx.preview::FlexAttention")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with a subgraph on the scores and another on the weights, in float32 or wider unless specified."""
    within = dtype_of(softmax_precision) if softmax_precision is not None else wide(Q).dtype
    factor = within.type(scale if scale is not None else 1 / math.sqrt(Q.shape[-1]))
    scores = _grouped_matmul(Q.astype(within), K.astype(within).swapaxes(-1, -2)) * factor
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = softmax_in_steps(scores)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return _grouped_matmul(weights, V.astype(within)).astype(Q.dtype)


@rule("RotaryEmbedding")
@widened
def rotary_embedding(X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    """Rotates pairs of features, neighbours if interleaved and otherwise from the two halves, by the position's angles."""
    x = X.transpose(0, 2, 1, 3) if X.ndim == 4 else X.reshape(*X.shape[:2], num_heads, -1)
    size = rotary_embedding_dim or x.shape[-1]
    cos, sin = (c if position_ids is None else c[position_ids] for c in (cos_cache, sin_cache))
    if cos.shape[-1] != size // 2:
        raise ValueError(f"the caches have {cos.shape[-1]} angles, {size // 2} are needed")
    cos, sin = cos[:, :, None], sin[:, :, None]
    y = x.copy()
    first, second = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    y[..., first] = cos * x[..., first] - sin * x[..., second]
    y[..., second] = sin * x[..., first] + cos * x[..., second]
    return y.transpose(0, 2, 1, 3) if X.ndim == 4 else y.reshape(X.shape)
