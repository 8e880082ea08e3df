"""Attention by PyTorch's fused kernel. Cases it does not support raise Unsupported and are decomposed into products."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import torch
import torch.nn.functional as F

from onnxbridge.backends.pytorch import dtypes
from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Outputs


@rule("Attention")
def attention(
    Q, K, V, attn_mask=None, past_key=None, past_value=None, nonpad_kv_seqlen=None, *, is_causal=0, kv_num_heads=None,
    q_num_heads=None, qk_matmul_output_mode=0, scale=None, softcap=0.0, softmax_precision=None, outputs: Outputs,
):  # fmt: skip
    if nonpad_kv_seqlen is not None or softcap or any(outputs[3:]):
        raise Unsupported("nonpad_kv_seqlen, softcap or the scores as an output")
    if softmax_precision is not None and ir.DataType(softmax_precision) == ir.DataType.DOUBLE and Q.dtype != torch.float64:
        raise Unsupported("softmax_precision double")
    if Q.dtype != V.dtype or Q.dtype not in (torch.float32, torch.float64):
        raise Unsupported(f"attention in {Q.dtype}")
    split = Q.ndim == 3
    if split:
        Q, K, V = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    if past_key is not None:
        K, V = torch.cat([past_key, K], 2), torch.cat([past_value, V], 2)
    if is_causal and (attn_mask is not None or past_key is not None):
        raise Unsupported("is_causal with attn_mask or past_key")
    if attn_mask is not None and not _covers(attn_mask, Q, K):
        raise Unsupported("an attn_mask that does not cover every key")
    heads = Q.shape[1], K.shape[1]
    if scale is not None and isinstance(Q.shape[-1], int) and np.float32(scale) == np.float32(1 / math.sqrt(Q.shape[-1])):
        scale = None  # the default
    y = F.scaled_dot_product_attention(
        Q, K, V, attn_mask, is_causal=bool(is_causal), scale=scale if scale is None or math.isfinite(scale) else None,
        enable_gqa=heads[0] is not heads[1] and heads[0] != heads[1],
    )  # fmt: skip
    if split:
        y = y.transpose(1, 2).flatten(2)
    return (y, K, V, None)[: len(outputs)]


def _heads(x, count):
    return x.unflatten(-1, (count, x.shape[-1] // count)).transpose(1, 2)


def _covers(mask, Q, K):
    """Whether a mask has an entry for each key; a shorter one would mask out the rest."""
    if not mask.is_known or mask.dtype not in (torch.bool, Q.dtype):
        return False
    known, keys = mask.fake.shape[-1], K.fake.shape[-2]
    return bool(isinstance(known, int) and isinstance(keys, int) and known == keys) or str(known) == str(keys)


@rule("ai.onnx.preview::FlexAttention")
def flex_attention(Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention with a subgraph on the scores and another on the probabilities, computed in at least float32 by default."""
    least = torch.float32 if Q.dtype in (torch.float16, torch.bfloat16) else Q.dtype
    within = least if softmax_precision is None else dtypes.attribute(softmax_precision)
    q, k, v = (x.to(within) for x in (Q, K, V))
    groups = q.shape[1] // k.shape[1]
    if not isinstance(groups, int) or groups != 1:
        k, v = (torch.repeat_interleave(x, groups, 1) for x in (k, v))
    scores = torch.matmul(q, k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if score_mod is not None:
        (scores,) = score_mod(scores)
    weights = torch.softmax(scores, -1)
    if prob_mod is not None:
        (weights,) = prob_mod(weights)
    return torch.matmul(weights, v).to(Q.dtype)
