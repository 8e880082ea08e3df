"""Sizes known only when the model runs: batches and sequences of attention and recurrent layers, to MXNet."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import onnxbridge
from onnxbridge.backends.mxnet import backend

TOKENS, WIDTH, HEADS = 50, 32, 4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


class Encoder(nn.Module):
    """With a mask of the positions that are padding, which differ by sample."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids, padding):
        return self.encoder(self.embed(ids), src_key_padding_mask=padding)


class GPT(nn.Module):
    """One causal block with learned positions, of which the sequence takes the first; `by_hand` builds the mask from ranges."""

    def __init__(self, by_hand=False):
        super().__init__()
        self.embed, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Parameter(torch.randn(1, 64, WIDTH))
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, TOKENS)
        self.by_hand = by_hand

    def forward(self, ids):
        batch, length = ids.shape
        x = self.embed(ids) + self.positions[:, :length]
        parts = self.qkv(self.norm(x)).split(WIDTH, -1)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        if self.by_hand:
            later = ~torch.tril(torch.ones(length, length, dtype=torch.bool))
            y = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(later, float("-inf")).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH)))


class BiLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True), nn.Linear(32, 3)

    def forward(self, x):
        return self.fc(self.lstm(x)[0].mean(1))


class Shapes(nn.Module):
    """Reshape, Expand, ConstantOfShape, Range and Slice of dynamic sizes and of their products."""

    def forward(self, x):
        batch, length, width = x.shape
        rows = x.reshape(batch * length, width).softmax(-1).reshape(batch, length, width)
        ones = torch.ones(batch, length, 2, dtype=torch.bool)
        numbers = torch.arange(length, dtype=torch.int64)[None, :, None].expand(batch, length, 3)
        return rows + x.flatten(1).reshape(batch, length, -1), torch.cat([x, ones.to(x.dtype)], -1), ones, numbers


class ComputedSizes(nn.Module):
    """One more and one less than a length, the next even number, and the shift of relative positions."""

    def forward(self, x):
        batch, length, width = x.shape
        fewer = torch.zeros(batch, length - 1, width) + x[:, 1:] * torch.arange(length - 1)[None, :, None]
        more = x[:, :1].expand(batch, length + 1, width) * 2.0
        scores = x @ x.transpose(1, 2)
        shifted = F.pad(scores, (1, 0)).view(batch, length + 1, length)[:, 1:].reshape(scores.shape)
        return fewer, more, torch.ones(2 * ((length + 1) // 2), batch), shifted


CASES = {
    "attention": (Attention(), (torch.randn(2, 5, WIDTH),), ("BT",)),
    "encoder": (Encoder(), (torch.randint(0, TOKENS, (2, 7)), torch.zeros(2, 7, dtype=torch.bool)), ("BT", "BT")),
    "gpt": (GPT(), (torch.randint(0, TOKENS, (2, 7)),), ("BT",)),
    "gpt by hand": (GPT(by_hand=True), (torch.randint(0, TOKENS, (2, 7)),), ("BT",)),
    "bilstm": (BiLSTM(), (torch.randn(2, 6, 8),), ("B",)),
    "computed sizes": (ComputedSizes(), (torch.randn(2, 5, 4),), ("BT",)),
    "shapes": (Shapes(), (torch.randn(2, 5, 4),), ("BT",)),
}


@pytest.mark.parametrize("name", CASES)
def test_batches_and_sequences_of_any_length(name, tmp_path):
    module, example, sizes = CASES[name]
    dims = {"B": torch.export.Dim("B"), "T": torch.export.Dim("T", min=3, max=60)}
    dynamic = tuple({axis: dims[letter] for axis, letter in enumerate(letters)} for letters in sizes)
    torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=dynamic), tmp_path / "net.pt2")
    report = onnxbridge.convert(tmp_path / "net.pt2", to="mxnet", mutants=0).report
    assert report.agrees and report.reference == "PyTorch", str(report)
    assert all(size in str(report) for size in ("_0 = ", "_1 = ")[: len(sizes[0])])  # they were varied


def attention(**attributes):
    text = (
        '<ir_version: 12, opset_import: ["" : 24]> g (float[B, 4, S, 8] q, float[B, 2, T, 8] k, float[B, 2, T, 6] v, '
        "MASK[B, 1, S, T] mask) => (float[B, 4, S, 6] y) { y = Attention(q, k, v, mask) }"
    )
    model = onnx.parser.parse_model(text.replace("MASK", attributes.pop("mask")))
    model.graph.node[0].attribute.extend(onnx.helper.make_attribute(*item) for item in attributes.items())
    return model


@pytest.mark.parametrize("mask", ["bool", "float"])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"softcap": 2.0, "scale": 0.3}], ids=str)
def test_attention_of_grouped_heads_with_a_mask(mask, attributes):
    """Queries of which all keys are hidden have zeros."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 5, 8), (3, 2, 7, 8), (3, 2, 7, 6)))
    seen = rng.random((3, 1, 5, 7)) > 0.3
    seen[1, 0, 2] = False
    given = seen if mask == "bool" else np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(np.float32)
    data = [{"q": q, "k": k, "v": v, "mask": given}]
    report = onnxbridge.convert(attention(mask=mask, **attributes), to="mxnet", data=data, mutants=0).report
    assert report.agrees, str(report)


def run(text, **data):
    """Convert a model in ONNX's text form, and compare MXNet's results of these inputs."""
    head = '<ir_version: 10, opset_import: ["" : 21]> '
    report = onnxbridge.convert(onnx.parser.parse_model(head + text), to="mxnet", data=[data], mutants=0).report
    assert report.agrees, str(report)


def test_the_sign_of_zero_is_expanded():
    text = (
        "g (float[N, 1] x) => (float[N, 3] y, float[N] z) { "
        "n = Shape<start = 0, end = 1>(x) three = Constant<value_ints = [3]>() "
        "both = Concat<axis = 0>(n, three) e = Expand(x, both) y = Reciprocal(e) "
        "c = ConstantOfShape<value = float[1] {-0.0}>(n) z = Reciprocal(c) }"
    )
    run(text, x=np.array([[-0.0], [0.0]], np.float32))


def test_a_slice_of_everything_is_everything():
    text = (
        "g (float[N, 4] x) => (float[N, 4] y) { n = Shape<start = 0, end = 1>(x) zero = Constant<value_ints = [0]>() "
        "y = Slice(x, zero, n, zero) }"
    )
    run(text, x=np.arange(12, dtype=np.float32).reshape(3, 4))


def test_a_mask_of_fewer_keys_hides_the_others():
    """How many it hides is a difference of sizes of two inputs. ONNX Runtime has only masks of all keys."""
    text = (
        "g (float[B, 2, S, 4] q, float[B, 2, T, 4] k, float[B, 2, T, 4] v, bool[B, 1, S, M] mask) => (float[B, 2, S, 4] y) "
        "{ y = Attention(q, k, v, mask) }"
    )
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((3, 2, n, 4)).astype(np.float32) for n in (5, 7, 7))
    mask = rng.random((3, 1, 5, 4)) > 0.3
    model = onnx.parser.parse_model('<ir_version: 12, opset_import: ["" : 24]> ' + text)
    artifact = onnxbridge.convert(model, to="mxnet", verify=False).artifact
    (found,) = backend.runner(artifact)({"q": q, "k": k, "v": v, "mask": mask}).values()
    all_keys = np.pad(mask, [(0, 0), (0, 0), (0, 0), (0, 3)])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(found, session.run(None, {"q": q, "k": k, "v": v, "mask": all_keys})[0], rtol=1e-5, atol=1e-6)


def test_everything_is_sorted_along_a_dynamic_axis():
    text = (
        "g (float[N, 4] x) => (float[N, 4] y, int64[N, 4] i) { n = Shape<start = 0, end = 1>(x) "
        "y, i = TopK<axis = 0, largest = 0>(x, n) }"
    )
    run(text, x=np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32))
