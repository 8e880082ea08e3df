"""Attention."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.frontends.pytorch.fx.promotion import cast
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.pytorch.ops.random import apply_dropout
from onnxbridge.frontends.pytorch.ops.shape import rank, swap_axes

D = ir.DataType


@rule("aten::scaled_dot_product_attention")
def attention(op, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    if dropout_p:
        return decomposed_attention(op, query, key, value, attn_mask, is_causal, scale, enable_gqa, dropout_p)
    same_heads = [query.shape[1], key.shape[1]] if rank(query) == rank(key) == rank(value) == 4 else []
    supported = same_heads and (same_heads[0] == same_heads[1] or enable_gqa) and (attn_mask is None or rank(attn_mask) in (2, 4))
    if not supported or list(query.shape)[0] != list(key.shape)[0] or _has_mixed_dtypes(query, key, value):
        return decomposed_attention(op, query, key, value, attn_mask, is_causal, scale, enable_gqa)
    y = op.Attention(query, key, value, _expand_mask(op, attn_mask, query), is_causal=int(is_causal) or None, scale=scale)
    return y if attn_mask is None else _zero_fully_masked(op, attn_mask, y)


def _has_mixed_dtypes(*values):
    return len({v.dtype for v in values}) > 1


def _expand_mask(op, mask, query):
    """The mask with a row for each query: ONNX broadcasts a single row, ONNX Runtime 1.31 does not."""
    if mask is None or mask.shape[-2] != 1 or query.shape[-2] == 1:
        return mask
    return op.Expand(mask, op.dims([1] * (rank(mask) - 2) + [op.size(query, -2), 1]))


def _zero_fully_masked(op, mask, y):
    """Set rows to 0 where a query is fully masked, as PyTorch does; ONNX does not define them."""
    hidden = op.Not(mask) if mask.dtype == D.BOOL else op.Equal(mask, -math.inf)
    fully_masked = op.Cast(op.ReduceMin(op.Cast(hidden, to=D.INT32), [-1], keepdims=1), to=D.BOOL)
    return op.Where(fully_masked, 0.0, y)


def decomposed_attention(op, query, key, value, mask, is_causal, scale, enable_gqa, dropout_p=0.0):
    maybe_dropout = lambda weights: apply_dropout(op, weights, dropout_p)[0] if dropout_p else weights  # noqa: E731
    if enable_gqa:
        key, value = (_repeat_heads(op, v, query.shape[-3], v.shape[-3]) for v in (key, value))
    if scale is None:
        size = op.size(query, -1)
        scale = 1 / math.sqrt(size) if isinstance(size, int) else op.Reciprocal(op.Sqrt(cast(op, size, query.dtype)))
    scores = op.MatMul(op.Mul(query, scale), swap_axes(op, key, -2, -1))
    if is_causal:
        rows, columns = op.size(query, -2), op.size(key, -2)
        if not (isinstance(rows, int) and isinstance(columns, int)):
            mask = op.Trilu(op.Expand(cast(op, 1, D.INT64), op.dims([rows, columns])), np.int64(0), upper=0)
            mask = op.Cast(mask, to=D.BOOL)
        else:
            mask = op.constant(np.tril(np.ones((rows, columns), bool)))
    if mask is None:
        return op.MatMul(maybe_dropout(op.Softmax(scores, axis=-1)), value)
    scores = op.Where(mask, scores, -math.inf) if mask.dtype == D.BOOL else op.Add(scores, cast(op, mask, scores.dtype))
    fully_masked = op.Equal(op.ReduceMax(scores, [-1], keepdims=1), -math.inf)
    return op.MatMul(maybe_dropout(op.Where(fully_masked, 0.0, op.Softmax(scores, axis=-1))), value)


def _repeat_heads(op, x, heads, own):
    """Repeat the key/value heads to the number of query heads."""
    if not (isinstance(heads, int) and isinstance(own, int)):
        raise Unsupported("grouped queries with a dynamic number of heads")
    return x if heads == own else op.Gather(x, np.repeat(np.arange(own), heads // own), axis=-3)
