"""Attention and rotary position embedding."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.hub.limits import claim
from onnxbridge.rules import Outputs
from onnxbridge.runtime.numpy.dtypes import dtype_of, wide, widened
from onnxbridge.runtime.numpy.ops import rule


def _heads(x, count):
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)


def _grouped_matmul(a, b):
    """The product of a (B, H, S, D) with b (B, G, D, T), where each of b's G heads serves H/G of a's."""
    batch, heads, rows = a.shape[:3]
    groups = b.shape[1]
    claim((batch, heads, rows, b.shape[3]), a.dtype)
    if heads == groups:
        return np.matmul(a, b)
    y = np.matmul(a.reshape(batch, groups, heads // groups, *a.shape[2:]), b[:, :, None])
    return y.reshape(batch, heads, rows, b.shape[3])


def _visible(queries, keys, past, lengths, is_causal, left, right):
    """Which keys each query may see, as (batch or 1, 1, queries, keys); None for all of them."""
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


def _softmax(scores):
    """Rows that are -inf throughout give zeros."""
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(np.isneginf(top), 0, top).astype(scores.dtype))
    total = np.sum(e, axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total).astype(scores.dtype)


def _mask(attn_mask, keys, dtype):
    """The mask as numbers to add; keys behind its end are not seen."""
    if attn_mask.dtype == np.bool_:
        attn_mask = np.where(attn_mask, 0, -np.inf)
    missing = keys - attn_mask.shape[-1]
    if missing > 0:
        attn_mask = np.pad(wide(attn_mask), [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)], constant_values=-np.inf)
    return attn_mask.astype(dtype)


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
    # Both factors get the root of the scale, which keeps their product in range.
    root = math.sqrt(scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    a, b = wide(q), wide(k)
    kind = a.dtype.type
    scores = _grouped_matmul(a * kind(root), (b * kind(root)).swapaxes(-1, -2))
    stages = [scores]
    if softcap:
        scores = np.tanh(scores / kind(softcap)) * kind(softcap)
    stages.append(scores)
    if attn_mask is not None:
        scores = scores + _mask(attn_mask, k.shape[2], scores.dtype)
    seen = _visible(q.shape[2], k.shape[2], past, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size)
    if seen is not None:
        scores = np.where(seen, scores, kind(-np.inf))
    stages.append(scores)
    if softmax_precision is not None:
        scores = wide(scores.astype(dtype_of(softmax_precision)))
    weights = _softmax(scores).astype(a.dtype, copy=False)
    stages.append(weights)
    y = _grouped_matmul(weights, wide(v))
    if flat:
        y = y.transpose(0, 2, 1, 3).reshape(*Q.shape[:2], -1)
    y = y.astype(Q.dtype, copy=False)
    if len(outputs) < 2:
        return y
    return y, k, v, stages[qk_matmul_output_mode].astype(Q.dtype, copy=False)


@rule("RotaryEmbedding")
@widened
def rotary_embedding(X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    """Rotates pairs of features, neighbours if interleaved and otherwise from the two halves, by the position's angles."""
    x = X.transpose(0, 2, 1, 3) if X.ndim == 4 else X.reshape(*X.shape[:2], num_heads, -1)
    size = rotary_embedding_dim or x.shape[-1]
    cos, sin = (c if position_ids is None else c[position_ids] for c in (cos_cache, sin_cache))
    if cos.shape[-1] != size // 2:
        raise ValueError(f"the caches hold {cos.shape[-1]} angles, {size // 2} are needed")
    cos, sin = cos[:, :, None], sin[:, :, None]
    y = x.copy()
    first, second = (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    y[..., first] = cos * x[..., first] - sin * x[..., second]
    y[..., second] = sin * x[..., first] + cos * x[..., second]
    return y.transpose(0, 2, 1, 3) if X.ndim == 4 else y.reshape(X.shape)
