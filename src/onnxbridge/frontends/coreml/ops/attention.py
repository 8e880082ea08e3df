"""Attention operators."""

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.ir.values import rank, static_shape


def _expand_mask(op, mask, query):
    """Expand a mask to one row per query: runtimes broadcast only the axes before the rows."""
    if mask is None or mask.shape[-2] == query.shape[-2]:
        return mask
    return op.Expand(mask, op.dims([*(1 for _ in range(rank(mask) - 2)), op.size(query, -2), 1]))


@rule("scaled_dot_product_attention")
def scaled_dot_product_attention(op, query, key, value, attn_mask=None):
    if rank(query) == 4 and list(query.shape)[:2] == list(key.shape)[:2] == list(value.shape)[:2]:
        return op.Attention(query, key, value, _expand_mask(op, attn_mask, query))
    (width,) = static_shape(query, [-1])
    swapped = [*range(rank(key) - 2), rank(key) - 1, rank(key) - 2]
    scores = op.Div(op.MatMul(query, op.Transpose(key, perm=swapped)), math.sqrt(width))
    if attn_mask is not None and attn_mask.dtype == ir.DataType.BOOL:
        scores = op.Where(attn_mask, scores, -np.inf)
    elif attn_mask is not None:
        scores = op.Add(scores, attn_mask)
    return op.MatMul(op.Softmax(scores), value)
