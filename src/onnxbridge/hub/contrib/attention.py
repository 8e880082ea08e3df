"""Attention as ONNX Runtime fuses it, with the projections inside or before it."""

from __future__ import annotations

import math

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.contrib import MICROSOFT, contrib, rank_of
from onnxbridge.rules import Outputs


def _heads(op, x, count):
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    return op.Transpose(op.Reshape(x, np.array([0, 0, count, -1], np.int64)), perm=[0, 2, 1, 3])


def _joined(op, x):
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), np.array([0, 0, -1], np.int64))


def _padding(op, mask, keys, filter_value, like):
    """What a mask of the keys adds to the scores: (batch, keys) of ones where one is seen, or (batch,) of how many are."""
    if rank_of(mask) == 1 and mask.shape[0] is not None:
        places = op.Unsqueeze(op.Range(np.array(0, np.int64), keys, np.array(1, np.int64)), [0])
        mask = op.Less(places, op.Unsqueeze(op.Cast(mask, to=7), [1]))
    elif rank_of(mask) == 2:
        mask = op.Greater(mask, 0)
    else:
        raise Unsupported("a mask of each query")
    return op.Unsqueeze(op.Where(mask, op.CastLike(0.0, like), op.CastLike(filter_value, like)), [1, 2])


def _causal(op, queries, keys, filter_value, like):
    """What hides the keys behind each query; the queries are the last of the keys."""
    step, first = np.array(1, np.int64), np.array(0, np.int64)
    at = op.Unsqueeze(op.Range(op.Sub(keys, queries), keys, step), [1])
    seen = op.LessOrEqual(op.Unsqueeze(op.Range(first, keys, step), [0]), at)
    return op.Where(seen, op.CastLike(0.0, like), op.CastLike(filter_value, like))


def _count(op, x, axis):
    """A size as a scalar value."""
    size = op.size(x, axis)
    return op.constant(np.array(size, np.int64)) if isinstance(size, int) else size


def _attended(op, q, k, v, mask, bias, unidirectional, filter_value, scale):
    """Attention of (batch, heads, sequence, size) as ONNX Runtime has it: what is masked gets a large negative number."""
    size = q.shape[-1]
    if scale is None and not isinstance(size, int):
        raise Unsupported("heads of unknown size")
    factor = scale if scale is not None else 1 / math.sqrt(size)
    scores = op.Mul(op.MatMul(q, op.Transpose(k, perm=[0, 1, 3, 2])), factor)
    keys = _count(op, k, 2)
    if mask is not None:
        scores = op.Add(scores, _padding(op, mask, keys, filter_value, q))
    if unidirectional:
        scores = op.Add(scores, _causal(op, _count(op, q, 2), keys, filter_value, q))
    if bias is not None:
        scores = op.Add(scores, bias)
    return _joined(op, op.MatMul(op.Softmax(scores, axis=-1), v))


@contrib(MICROSOFT + "Attention")
def attention(
    op, input, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, *, do_rotary=0,
    mask_filter_value=-10000.0, num_heads, past_present_share_buffer=0, qkv_hidden_sizes=None, rotary_embedding_dim=0, scale=None,
    unidirectional=0, outputs: Outputs = (True,),
):  # fmt: skip
    if do_rotary or past_present_share_buffer:
        raise Unsupported("rotary embedding inside, or a shared buffer for the past")
    product = op.MatMul(input, weights)
    product = product if bias is None else op.Add(product, bias)
    sizes = op.constant(np.array(qkv_hidden_sizes, np.int64)) if qkv_hidden_sizes else None
    parts = op.Split(product, sizes, axis=-1, outputs=3, num_outputs=None if qkv_hidden_sizes else 3)
    q, k, v = (_heads(op, p, num_heads) for p in parts)
    if past is not None:
        before = [op.Squeeze(p, [0]) for p in op.Split(past, axis=0, num_outputs=2, outputs=2)]
        k, v = op.Concat(before[0], k, axis=2), op.Concat(before[1], v, axis=2)
    y = _attended(op, q, k, v, mask_index, attention_bias, unidirectional, mask_filter_value, scale)
    return (y, op.Concat(op.Unsqueeze(k, [0]), op.Unsqueeze(v, [0]), axis=0)) if len(outputs) > 1 else y


@contrib(MICROSOFT + "MultiHeadAttention")
def multi_head_attention(
    op, query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None, past_key=None, past_value=None,
    past_sequence_length=None, cache_indirection=None, *, mask_filter_value=-10000.0, num_heads, scale=None, unidirectional=0,
    outputs: Outputs = (True,),
):  # fmt: skip
    given = (query, key, value)
    if any(v is None or rank_of(v) != 3 for v in given) or past_sequence_length is not None or any(outputs[3:]):
        raise Unsupported("packed inputs, keys that are split in heads, shared buffers or the scores as an output")
    if bias is not None:
        ends = np.cumsum([0, *(v.shape[-1] for v in given)]) if all(isinstance(v.shape[-1], int) for v in given) else None
        if ends is None:
            raise Unsupported("hidden sizes that are not known")
        given = [op.Add(v, op.Slice(bias, [int(a)], [int(b)], [0])) for v, a, b in zip(given, ends, ends[1:], strict=False)]
    q, k, v = (_heads(op, x, num_heads) for x in given)
    if past_key is not None:
        k, v = op.Concat(past_key, k, axis=2), op.Concat(past_value, v, axis=2)
    y = _attended(op, q, k, v, key_padding_mask, attention_bias, unidirectional, mask_filter_value, scale)
    return (y, k, v) if len(outputs) > 1 else y


@contrib(MICROSOFT + "RotaryEmbedding")
def rotary_embedding(
    op, input, position_ids, cos_cache, sin_cache, *, interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0,
    scale=1.0,
):  # fmt: skip
    if is_packed_batching or scale != 1.0 or rank_of(position_ids) != 2:
        raise Unsupported("packed batches, a scale, or one position for all rows")
    if not num_heads and rank_of(input) == 3:
        if not all(isinstance(v, int) for v in (input.shape[-1], cos_cache.shape[-1])):
            raise Unsupported("sizes that are not known")
        num_heads = input.shape[-1] // (2 * cos_cache.shape[-1])
    return op.RotaryEmbedding(
        input, cos_cache, sin_cache, position_ids, interleaved=interleaved, num_heads=num_heads or None,
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip
