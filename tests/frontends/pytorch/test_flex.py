"""flex_attention: attention with user-defined functions of the scores and the mask."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from tests.frontends.pytorch.compare import check_against_pytorch


def nearer(score, b, h, q, k):
    return score + (q - k) * 0.1


def causal(b, h, q, k):
    return q >= k


class Near(nn.Module):
    def forward(self, q, k, v):
        return flex_attention(q, k, v, score_mod=nearer)


class Causal(nn.Module):
    def forward(self, q, k, v):
        mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], device="cpu")
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True, scale=0.3)


class Documents(nn.Module):
    """With buffers in both functions, and fully masked rows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("slopes", torch.rand(4))
        self.register_buffer("document", torch.tensor([0] * 9 + [1] * 7))

    def forward(self, q, k, v):
        slopes, document = self.slopes, self.document

        def biased(score, b, h, i, j):
            return torch.tanh(score * 0.1) * 10 + slopes[h] * (j - i)

        def same(b, h, i, j):
            return (i > j) & (document[i] == document[j])

        mask = create_block_mask(same, None, None, 16, 16, device="cpu")
        return flex_attention(q, k, v, score_mod=biased, block_mask=mask, return_lse=True)


def given(batch, heads=4, length=16, shared=1):
    return torch.randn(batch, heads, length, 8), *(torch.randn(batch, heads // shared, length, 8) for _ in range(2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "inputs", "axes", "others"),
    [
        (Near(), given(2), {0: "batch", 2: "length"}, [given(3, length=5)]),
        (Causal(), given(2, shared=2), {0: "batch"}, [given(5, shared=2)]),
        (Documents(), given(2), {0: "batch"}, [given(1)]),
    ],
    ids=["score_mod", "mask_mod and grouped heads", "buffers"],
)
def test_flex_attention(module, inputs, axes, others):
    check_against_pytorch(module, inputs, dict.fromkeys("qkv", axes), others)
