"""Rotary position embedding as ONNX Runtime has it."""

from __future__ import annotations

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.hub.decompositions.microsoft import MICROSOFT, contrib, rank_of
from onnxbridge.hub.decompositions.microsoft.attention_heads import count, places


def _heads_of(input, cos_cache, num_heads):
    if num_heads or rank_of(input) != 3:
        return num_heads or None
    if not all(isinstance(v, int) for v in (input.shape[-1], cos_cache.shape[-1])):
        raise Unsupported("sizes that are not known")
    return input.shape[-1] // (2 * cos_cache.shape[-1])


@contrib(MICROSOFT + "RotaryEmbedding")
def rotary_embedding(
    op, input, position_ids, cos_cache, sin_cache, *, interleaved=0, is_packed_batching=0, num_heads=0, rotary_embedding_dim=0,
    scale=1.0,
):  # fmt: skip
    """One position alone is that of each row's first."""
    if is_packed_batching or scale != 1.0:
        raise Unsupported("packed batches or a scale")
    if rank_of(position_ids) != 2:
        rows = places(op, np.array(0, np.int64), count(op, input, 1 if rank_of(input) == 3 else 2))
        one = op.Unsqueeze(op.Add(op.Reshape(position_ids, [1]), rows), [0])
        position_ids = op.Expand(one, op.dims([op.size(input, 0), 1]))
    return op.RotaryEmbedding(
        input, cos_cache, sin_cache, position_ids, interleaved=interleaved, num_heads=_heads_of(input, cos_cache, num_heads),
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


@contrib(MICROSOFT + "MRotaryEmbedding")
def mrotary_embedding(
    op, input, position_ids, cos_cache, sin_cache, *, interleaved=0, is_packed_batching=0, mrope_layout=0, mrope_section,
    num_heads=0, rotary_embedding_dim=0, scale=1.0,
):  # fmt: skip
    """Each angle is taken at one of three positions (time, height, width) of its token."""
    if is_packed_batching or scale != 1.0:
        raise Unsupported("packed batches or a scale")
    width = sum(mrope_section)
    of = np.zeros(width, np.int64)
    if mrope_layout:
        for i in (1, 2):
            of[i : 3 * mrope_section[i] : 3] = i
    else:
        of = np.repeat(np.arange(3), mrope_section)

    def mixed(cache):
        rows = op.Transpose(op.Gather(cache, position_ids), perm=[1, 2, 0, 3])  # (batch, sequence, 3, width)
        chosen = op.Mul(rows, op.CastLike((of == np.arange(3)[:, None]).astype(np.float32), cache))
        return op.ReduceSum(chosen, [2], keepdims=0)

    return op.RotaryEmbedding(
        input, mixed(cos_cache), mixed(sin_cache), interleaved=interleaved, num_heads=_heads_of(input, cos_cache, num_heads),
        rotary_embedding_dim=rotary_embedding_dim,
    )  # fmt: skip


@contrib(MICROSOFT + "GemmaRotaryEmbedding")
def gemma_rotary_embedding(op, emb, q, q_rot, k, k_rot):
    """Queries and keys, with those whose halves were exchanged, turned by angles in float32."""
    cos, sin = (op.Unsqueeze(op.CastLike(v, q), [1]) for v in (op.Cos(emb), op.Sin(emb)))
    return tuple(op.Add(op.Mul(x, cos), op.Mul(turned, sin)) for x, turned in ((q, q_rot), (k, k_rot)))
