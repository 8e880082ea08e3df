"""ONNX Runtime's rotary position embeddings."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import arange, dim_size


def _num_heads(input, cos_cache, num_heads):
    if num_heads or rank_of(input) != 3:
        return num_heads or None
    if not all(isinstance(v, int) for v in (input.shape[-1], cos_cache.shape[-1])):
        raise Unsupported("dynamic head sizes")
    return input.shape[-1] // (2 * cos_cache.shape[-1])


@contrib(MICROSOFT + "RotaryEmbedding")
def rotary_embedding(
    op, input, position_ids, cos_cache, sin_cache, *, interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0,
    scale=1.0,
):  # fmt: skip
    """A single position is the position of the first token of each sequence."""
    if is_packed_batching or scale != 1.0:
        raise Unsupported("is_packed_batching or scale")
    if rank_of(position_ids) != 2:
        rows = arange(op, np.array(0, np.int64), dim_size(op, input, 1 if rank_of(input) == 3 else 2))
        positions = op.Unsqueeze(op.Add(op.Reshape(position_ids, [1]), rows), [0])
        position_ids = op.Expand(positions, op.dims([op.size(input, 0), 1]))
    return op.RotaryEmbedding(
        input, cos_cache, sin_cache, position_ids, interleaved=interleaved, num_heads=_num_heads(input, cos_cache, num_heads),
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


@contrib(MICROSOFT + "MRotaryEmbedding")
def mrotary_embedding(
    op, input, position_ids, cos_cache, sin_cache, *, interleaved=0, is_packed_batching=0, mrope_layout=0, mrope_section,
    num_heads=0, rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """Each angle uses one of three position ids (time, height, width) of its token."""
    if is_packed_batching or scale != 1.0:
        raise Unsupported("is_packed_batching or scale")
    width = sum(mrope_section)
    section = np.zeros(width, np.int64)
    if mrope_layout:
        for i in (1, 2):
            section[i : 3 * mrope_section[i] : 3] = i
    else:
        section = np.repeat(np.arange(3), mrope_section)

    def select_sections(cache):
        rows = op.Transpose(op.Gather(cache, position_ids), perm=[1, 2, 0, 3])  # (batch, sequence, 3, width)
        selected = op.Mul(rows, op.CastLike((section == np.arange(3)[:, None]).astype(np.float32), cache))
        return op.ReduceSum(selected, [2], keepdims=0)

    return op.RotaryEmbedding(
        input, select_sections(cos_cache), select_sections(sin_cache), interleaved=interleaved,
        num_heads=_num_heads(input, cos_cache, num_heads), rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


@contrib(MICROSOFT + "GemmaRotaryEmbedding")
def gemma_rotary_embedding(op, emb, q, q_rot, k, k_rot):
    """Rotates queries and keys; q_rot and k_rot are these with their halves exchanged. The angles are float32."""
    cos, sin = (op.Unsqueeze(op.CastLike(v, q), [1]) for v in (op.Cos(emb), op.Sin(emb)))
    return tuple(op.Add(op.Mul(x, cos), op.Mul(rotated, sin)) for x, rotated in ((q, q_rot), (k, k_rot)))
