"""Attention."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.ops.types import BOOL, cast, fixed, rank, typed
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs


def repeated_heads(sym, x, groups):
    """Each head of keys or values, once for each head of queries that uses it."""
    if groups == 1:
        return x
    y = sym.repeat(x, repeats=groups, axis=1)
    y.dtype, y.shape = x.dtype, (x.shape[0], x.shape[1] * groups, *x.shape[2:])
    return y


@rule("Attention")
def attention(
    sym, Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, kv_num_heads=None,
    left_window_size=-1, q_num_heads=None, qk_matmul_output_mode=0, right_window_size=-1, scale=None, softcap=0.0,
    softmax_precision=None, used: Outputs,
):  # fmt: skip
    """The usual case, with any sizes; the decomposition covers the rest."""
    if any(v is not None for v in (past_key, past_value, nonpad_kv_seqlen, softmax_precision)) or any(used[1:]):
        raise Unsupported("attention with a cache, lengths, a softmax of another precision, or more than one result")
    if left_window_size >= 0 or right_window_size >= 0 or Q.dtype.name not in ("float32", "float64"):
        raise Unsupported(f"attention in windows, or of {Q.dtype}")
    flat = rank(Q) == 3
    q, k, v = (_heads(sym, Q, q_num_heads), _heads(sym, K, kv_num_heads), _heads(sym, V, kv_num_heads)) if flat else (Q, K, V)
    (heads, width), (key_heads,) = fixed(q, [1, 3]), fixed(k, [1])
    k, v = (repeated_heads(sym, x, heads // key_heads) for x in (k, v))
    shape = (*q.shape[:3], k.shape[2])
    root = np.array((width**-0.5 if scale is None else scale) ** 0.5, Q.dtype)  # of each factor, so that products stay in range
    q, k = (typed(sym._npi_multiply(x, root), Q.dtype, x.shape) for x in (q, k))
    scores = typed(sym._npi_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))), Q.dtype, shape)
    if softcap:
        cap = np.array(softcap, Q.dtype)
        scores = typed(sym._npi_multiply(sym.tanh(sym._npi_true_divide(scores, cap)), cap), Q.dtype, shape)
    bias = _bias(sym, scores, attn_mask, is_causal)
    if bias is None:
        weights = typed(sym.softmax(scores, axis=-1), Q.dtype, shape)
    else:
        weights = typed(sym.softmax(sym._npi_add(scores, bias), axis=-1), Q.dtype, shape)
        if attn_mask is not None:  # which may hide all keys from a query
            largest = typed(sym.max(bias, axis=-1, keepdims=True), Q.dtype)
            hidden = typed(sym._npi_equal(largest, np.array(-np.inf, Q.dtype)), BOOL)
            weights = typed(sym._npi_where(hidden, np.zeros(1, Q.dtype), weights), Q.dtype, shape)
    y = typed(sym._npi_matmul(weights, v), Q.dtype, (*shape[:3], v.shape[3]))
    return sym.Reshape(sym.transpose(y, axes=(0, 2, 1, 3)), shape=(0, 0, -1)) if flat else y


def _heads(sym, x, heads):
    """(batch, sequence, heads * size) as (batch, heads, sequence, size)."""
    width = fixed(x, [2])[0] // heads
    y = sym.transpose(sym.Reshape(x, shape=(0, 0, heads, width)), axes=(0, 2, 1, 3))
    return typed(y, x.dtype, (x.shape[0], heads, x.shape[1], width))


def _bias(sym, scores, mask, is_causal):
    """What is added to the scores: the mask, and -inf for keys that come after a query; None for nothing."""
    bias, minus = None, np.array(-np.inf, scores.dtype)
    if mask is not None:
        keys = scores.shape[3]
        if mask.shape is None or keys is None or mask.shape[-1] != keys:
            raise Unsupported("a mask of fewer keys, or of an unknown number")
        bias = mask if mask.dtype != BOOL else sym._npi_where(mask, np.zeros(1, scores.dtype), minus.reshape(1))
        bias = typed(bias, scores.dtype)
    if not is_causal:
        return bias
    query, key = (typed(sym._contrib_arange_like(scores, axis=axis), scores.dtype) for axis in (2, 3))
    seen = typed(sym._npi_less_equal(sym.expand_dims(key, axis=0), sym.expand_dims(query, axis=1)), BOOL)
    hidden = typed(sym._npi_where(seen, np.zeros(1, scores.dtype), minus.reshape(1)), scores.dtype)
    return hidden if bias is None else typed(sym._npi_add(bias, hidden), scores.dtype)


@rule("ai.onnx.preview::FlexAttention")
def flex_attention(sym, Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with a subgraph on the scores and another on the probabilities, computed in at least float32 by default."""
    within = np.dtype(ir.DataType(softmax_precision).numpy()) if softmax_precision else np.promote_types(Q.dtype, np.float32)
    if within.name not in ("float32", "float64"):
        raise Unsupported(f"softmax_precision={within.name}")
    heads, key_heads, width = fixed(Q, [1])[0], fixed(K, [1])[0], fixed(Q, [3])[0]
    q, k, v = (cast(sym, x, within) for x in (Q, K, V))
    k, v = (repeated_heads(sym, x, heads // key_heads) for x in (k, v))
    factor = np.array(width**-0.5 if scale is None else scale, within)
    shape = (*Q.shape[:3], K.shape[2])
    scores = typed(sym._npi_matmul(q, sym.transpose(k, axes=(0, 1, 3, 2))), within, shape)
    scores = typed(sym._npi_multiply(scores, factor), within, shape)
    if score_mod is not None:
        scores = typed(score_mod(scores)[0], within, shape)
    weights = typed(sym.softmax(scores, axis=-1), within, shape)
    if prob_mod is not None:
        weights = typed(prob_mod(weights)[0], within, shape)
    return cast(sym, typed(sym._npi_matmul(weights, v), within), Q.dtype)
