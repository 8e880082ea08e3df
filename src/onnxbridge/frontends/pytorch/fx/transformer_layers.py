"""The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention, which TorchScript records in inference, decomposed.

The masks exclude: where one is not 0 or False, a query does not attend. Source: PyTorch's attention.cpp and transformer.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from onnxbridge import frameworks


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Functions by operator, with the signature of the operator."""
    aten = frameworks.torch().ops.aten
    return {
        aten._native_multi_head_attention.default: multi_head_attention,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }


def multi_head_attention(
    query: Any, key: Any, value: Any, embed_dim: int, num_head: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any,
    proj_bias: Any, mask: Any = None, need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """The attention of each head over arrays [batch, length, embed_dim], and its weights, which are empty unless they are needed.

    The mask is [length, length] (type 0), [batch, length] of the keys (1), or [batch, heads, length, length] (2).
    """
    torch = frameworks.torch()
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)

    def heads(x: Any, weight: Any, bias: Any) -> Any:
        return torch.nn.functional.linear(x, weight, bias).unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2)

    q, k, v = (heads(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    scores = (q / math.sqrt(embed_dim // num_head)) @ k.transpose(-2, -1)
    if mask is not None:
        excluded = mask.bool()
        scores = scores.masked_fill(excluded[:, None, None, :] if mask_type == 1 else excluded, float("-inf"))
    attention = scores.softmax(-1)
    merged = (attention @ v).transpose(1, 2).flatten(2)
    result = torch.nn.functional.linear(merged, proj_weight, proj_bias)
    if not need_weights:
        return result, query.new_empty((0,))
    return result, attention.mean(1) if average_attn_weights else attention


def encoder_layer(
    src: Any, embed_dim: int, num_heads: int, qkv_weight: Any, qkv_bias: Any, proj_weight: Any, proj_bias: Any, use_gelu: bool,
    norm_first: bool, eps: float, norm_weight_1: Any, norm_bias_1: Any, norm_weight_2: Any, norm_bias_2: Any, ffn_weight_1: Any,
    ffn_bias_1: Any, ffn_weight_2: Any, ffn_bias_2: Any, mask: Any = None, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """Attention and a feed-forward network, each with a residual, normalized before or after."""
    functional = frameworks.torch().nn.functional

    def attend(x: Any) -> Any:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, False, False, mask_type)[0]

    def feed_forward(x: Any) -> Any:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        return functional.linear(functional.gelu(hidden) if use_gelu else functional.relu(hidden), ffn_weight_2, ffn_bias_2)

    def normalize(x: Any, weight: Any, bias: Any) -> Any:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attend(normalize(src, norm_weight_1, norm_bias_1))
        return x + feed_forward(normalize(x, norm_weight_2, norm_bias_2))
    x = normalize(src + attend(src), norm_weight_1, norm_bias_1)
    return normalize(x + feed_forward(x), norm_weight_2, norm_bias_2)
