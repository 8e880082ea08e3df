"""Attention operators."""

import math

import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil._deployment_compatibility import AvailableTarget
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.block import curr_opset_version

from onnxbridge.backends.coreml.element_types import cast, like
from onnxbridge.backends.coreml.interface.kv_cache_state import GrowingStateValue
from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.sizes import broadcast, numbers, reshaped, select, size, sizes
from onnxbridge.rules import Outputs


def _heads(x, count):
    """Split (batch, sequence, heads * features) to (batch, heads, sequence, features); 4-D inputs are returned unchanged."""
    if x.rank == 4:
        return x
    batch, sequence, features = sizes(x)
    return mb.transpose(x=reshaped(x, [batch, sequence, count, features // count]), perm=[0, 2, 1, 3])


def _append(past, new):
    """The past keys or values with the new ones appended."""
    if isinstance(past, GrowingStateValue):
        return cast(past.followed_by(new), types.fp32)
    return mb.concat(values=[cast(past, types.fp32), new], axis=2)


def _repeat_heads(x, times):
    """Repeat each key or value head for its group of query heads."""
    if times == 1:
        return x
    batch, heads, sequence, features = numbers(x)
    x = mb.tile(x=mb.expand_dims(x=x, axes=[2]), reps=[1, 1, times, 1, 1])
    return mb.reshape(x=x, shape=[batch, heads * times, sequence, features])


@rule("Attention", limits="grouped heads need fixed sizes")
def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, kv_num_heads=None,
    left_window_size=-1, q_num_heads=None, qk_matmul_output_mode=0, right_window_size=-1, scale=None, softcap=0.0,
    softmax_precision=None, outputs: Outputs,
):  # fmt: skip
    flat, dtype = Q.rank == 3, Q.dtype
    Q, K, V = (cast(v, types.fp32) for v in (Q, K, V))
    q, k, v = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    past = 0
    if past_key is not None:
        past = past_key.position if isinstance(past_key, GrowingStateValue) else size(past_key, 2)
        k, v = _append(past_key, k), _append(past_value, v)
    present = k, v
    groups = int(q.shape[1]) // int(k.shape[1])
    k, v = _repeat_heads(k, groups), _repeat_heads(v, groups)
    scale = 1 / math.sqrt(int(q.shape[-1])) if scale is None else scale
    allowed = _visible_keys(q, k, past, nonpad_kv_seqlen, is_causal, left_window_size, right_window_size)
    bias = None
    if attn_mask is not None and attn_mask.dtype == types.bool:
        allowed = _and(allowed, _pad_mask(attn_mask, k, False))
    elif attn_mask is not None:
        bias = _pad_mask(cast(attn_mask, types.fp32), k, -np.inf)
    qk_output = len(outputs) > 3 and outputs[3]
    if curr_opset_version() >= AvailableTarget.iOS18 and not softcap and not qk_output:
        y, qk_output = _scaled_dot_product(q, k, v, allowed, bias, scale), None
    else:
        y, scores_by_mode = _composed(q, k, v, allowed, bias, scale, softcap)
        qk_output = scores_by_mode[qk_matmul_output_mode] if qk_output else None
    if flat:
        batch, heads, sequence, features = sizes(y)
        y = reshaped(mb.transpose(x=y, perm=[0, 2, 1, 3]), [batch, sequence, heads * features])
    return tuple(v if v is None else cast(v, dtype) for v in (y, *present, qk_output)[: len(outputs)])


def _composed(q, k, v, allowed, bias, scale, softcap):
    """The result, and the scores by `qk_matmul_output_mode`: raw, capped, masked, after softmax."""
    root = math.sqrt(scale)
    scores = mb.matmul(x=mb.mul(x=q, y=like(q, root)), y=mb.mul(x=k, y=like(k, root)), transpose_y=True)
    scores_by_mode = {0: scores}
    if softcap:
        scores = mb.mul(x=mb.tanh(x=mb.mul(x=scores, y=like(scores, 1 / softcap))), y=like(scores, softcap))
    scores_by_mode[1] = scores
    if bias is not None:
        scores = mb.add(x=scores, y=bias)
    if allowed is not None:
        scores = select(allowed, scores, like(scores, np.full((1,) * scores.rank, -np.inf)))
    scores_by_mode[2] = scores
    masked = allowed is not None or bias is not None
    weights = scores_by_mode[3] = _softmax(scores) if masked else mb.softmax(x=scores, axis=-1)
    return mb.matmul(x=weights, y=v), scores_by_mode


def _scaled_dot_product(q, k, v, allowed, bias, scale):
    """MIL's scaled_dot_product_attention. Its scale is fixed, and it gives NaN for fully masked rows, where ONNX gives zeros."""
    default_scale = 1 / math.sqrt(int(q.shape[-1]))
    q = q if scale == default_scale else mb.mul(x=q, y=like(q, scale / default_scale))
    mask = allowed if bias is None else bias
    if allowed is not None and bias is not None:
        mask = select(allowed, bias, like(bias, np.full((1,) * bias.rank, -np.inf)))
    if mask is None:
        return mb.scaled_dot_product_attention(query=q, key=k, value=v)
    y = mb.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=mask)
    is_bool = mask.dtype == types.bool
    if mask.val is not None and np.all(np.any(mask.val if is_bool else mask.val > -np.inf, axis=-1)):
        return y
    any_allowed = mb.reduce_max(x=cast(mask, types.int32) if is_bool else mask, axes=[-1], keep_dims=True)
    fully_masked = mb.equal(x=any_allowed, y=np.int32(0) if is_bool else like(mask, -np.inf))
    return select(fully_masked, like(y, np.zeros((1,) * y.rank)), y)


def _and(x, y):
    return y if x is None else mb.logical_and(x=x, y=y)


def _softmax(scores):
    """Softmax with zeros, not NaN, for fully masked rows."""
    largest = mb.reduce_max(x=scores, axes=[-1], keep_dims=True)
    fully_masked = mb.equal(x=largest, y=like(scores, -np.inf))
    weights = mb.softmax(
        x=mb.select(cond=_broadcast_like(fully_masked, scores), a=like(scores, np.zeros((1,) * scores.rank)), b=scores), axis=-1
    )
    return mb.select(cond=_broadcast_like(fully_masked, scores), a=like(scores, np.zeros((1,) * scores.rank)), b=weights)


def _broadcast_like(cond, x):
    return broadcast(cond, sizes(x))


def _pad_mask(mask, k, value):
    """Pad a mask that is shorter than the keys."""
    keys, have = size(k, 2), size(mask, -1)
    if not isinstance(keys, int) or not isinstance(have, int) or have in (keys, 1):
        return mask
    dtype = mask.dtype
    x = cast(mask, types.fp32) if dtype == types.bool else mask
    padded = mb.pad(x=x, pad=[0, keys - have], mode="constant", constant_val=like(x, float(value)))
    return mb.greater(x=padded, y=np.float32(0.5)) if dtype == types.bool else padded


def _arange(n):
    return mb.range_1d(start=np.int32(0), end=np.int32(n) if isinstance(n, int) else n, step=np.int32(1))


def _visible_keys(q, k, past, lengths, causal, left, right):
    """Which keys each query may attend to, as (batch or 1, 1, queries, keys); None for all of them."""
    if not causal and left < 0 and right < 0 and lengths is None:
        return None
    rows, columns = size(q, 2), size(k, 2)
    key = mb.reshape(x=_arange(columns), shape=[1, 1, 1, -1])
    query_position = mb.reshape(x=_arange(rows), shape=[1, 1, -1, 1])
    if lengths is not None:  # queries are aligned with the last valid keys
        lengths = mb.reshape(x=lengths, shape=[-1, 1, 1, 1])
        past = mb.sub(x=lengths, y=np.int32(rows) if isinstance(rows, int) else rows)
    if not isinstance(past, int) or past:
        query_position = mb.add(x=query_position, y=np.int32(past) if isinstance(past, int) else past)
    allowed = mb.less_equal(x=key, y=query_position) if causal else None
    if left >= 0:
        allowed = _and(allowed, mb.greater_equal(x=key, y=mb.sub(x=query_position, y=np.int32(left))))
    if right >= 0:
        allowed = _and(allowed, mb.less_equal(x=key, y=mb.add(x=query_position, y=np.int32(right))))
    return allowed if lengths is None else _and(allowed, mb.less(x=key, y=lengths))


@rule("ai.onnx.preview::FlexAttention", limits="grouped heads need fixed sizes")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with subgraphs that modify the scores and the weights."""
    dtype = Q.dtype
    q, k, v = (cast(x, types.fp32) for x in (Q, K, V))
    groups = int(q.shape[1]) // int(k.shape[1])
    k, v = _repeat_heads(k, groups), _repeat_heads(v, groups)
    factor = 1 / math.sqrt(int(q.shape[-1])) if scale is None else scale
    scores = mb.mul(x=mb.matmul(x=q, y=k, transpose_y=True), y=like(q, factor))
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = mb.softmax(x=scores, axis=-1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return cast(mb.matmul(x=weights, y=v), dtype)
