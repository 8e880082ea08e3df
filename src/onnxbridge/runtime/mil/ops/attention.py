"""Attention."""

import numpy as np

from onnxbridge.runtime.mil.ops import rule
from onnxbridge.runtime.mil.ops.activation import softmax


@rule("scaled_dot_product_attention")
def scaled_dot_product_attention(query, key, value, attn_mask=None):
    scores = np.matmul(query, key.swapaxes(-1, -2)) / np.sqrt(np.float32(query.shape[-1]))
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
    return np.matmul(softmax(scores), value)
