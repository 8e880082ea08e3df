"""Attention with its projections comes back as `keras.layers.MultiHeadAttention`, with the weights that it had."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch

import onnxbridge

R = np.random.default_rng(0)


def _attention(model):
    return [layer for layer in model.layers if isinstance(layer, keras.layers.MultiHeadAttention)]


def _returned(source, **options):
    """A model by way of ONNX, and what it is made of."""
    onnx = onnxbridge.convert(source, to="onnx", verify=False, **options).model
    made = onnxbridge.convert(onnx, to="tensorflow")
    assert made.report.agrees
    return made.model, [type(o).__name__ for o in made.model.operations]


@pytest.mark.parametrize("length", [None, 6])
@pytest.mark.parametrize("options", [{}, {"use_bias": False}, {"value_dim": 3}, {"output_shape": 5}])
def test_keras_layers_come_back(length, options):
    inputs = keras.Input((length, 8), name="x")
    source = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 4, name="mha", **options)(inputs, inputs))
    for weight in source.weights:
        weight.assign(R.normal(size=weight.shape))
    model, kinds = _returned(source)
    assert kinds == ["InputLayer", "MultiHeadAttention"]
    (layer,) = _attention(model)
    assert layer.name == "mha"
    for a, b in zip(layer.trainable_variables, source.layers[-1].trainable_variables, strict=True):
        assert a.path == b.path
        np.testing.assert_array_equal(a, b)


def test_cross_attention():
    query, memory = keras.Input((5, 8), name="query"), keras.Input((7, 6), name="memory")
    source = keras.Model([query, memory], keras.layers.MultiHeadAttention(2, 4, name="mha")(query, memory))
    model, kinds = _returned(source)
    assert kinds.count("MultiHeadAttention") == 1 and len(kinds) == 3
    given = [R.normal(size=(2, 5, 8)).astype(np.float32), R.normal(size=(2, 7, 6)).astype(np.float32)]
    np.testing.assert_allclose(model(given), source(given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [None, 6])
def test_causal_and_padding_masks(length):
    ids = keras.Input((length,), dtype="int32", name="ids")
    x = keras.layers.Embedding(20, 8, mask_zero=True)(ids)
    source = keras.Model(ids, keras.layers.MultiHeadAttention(2, 4, name="mha")(x, x, use_causal_mask=True))
    model, kinds = _returned(source)
    assert "MultiHeadAttention" in kinds and "Operators" not in kinds
    given = np.array([[1, 2, 3, 4, 0, 0], [5, 0, 7, 8, 9, 1], [0, 0, 0, 0, 0, 0]], np.int32)
    np.testing.assert_allclose(model(given), source(given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, {"src": {0: "N", 1: "L"}}])
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers_of_pytorch(norm_first, dynamic):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first).eval()
    model, kinds = _returned(layer, inputs=(torch.randn(2, 5, 8),), dynamic=dynamic)
    assert kinds.count("MultiHeadAttention") == 1 and kinds.count("Dense") == 2 and "Operators" not in kinds
    (attention,) = _attention(model)
    assert attention.name == "self_attn" and len(attention.trainable_variables) == 8
    weight = layer.self_attn.in_proj_weight.detach().numpy()
    np.testing.assert_array_equal(attention.query_dense.kernel, weight[:8].T.reshape(8, 2, 4))
    np.testing.assert_array_equal(attention.value_dense.kernel, weight[16:].T.reshape(8, 2, 4))


def test_sequence_first_and_causal_layers_of_pytorch():
    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.TransformerDecoderLayer(8, 2, 16)

        def forward(self, x, memory):
            mask = torch.nn.Transformer.generate_square_subsequent_mask(len(x))
            return self.layer(x, memory, tgt_mask=mask, tgt_is_causal=True)

    model, kinds = _returned(Decoder().eval(), inputs=(torch.randn(5, 2, 8), torch.randn(7, 2, 8)))
    assert kinds.count("MultiHeadAttention") == 2 and "Operators" not in kinds


class Heads(torch.nn.Module):
    """Attention written out, which is the layer unless something differs."""

    def __init__(self, key_bias=True, scale=0.5, order=(0, 2, 1, 3)):
        super().__init__()
        self.query, self.value, self.out = (torch.nn.Linear(8, 8) for _ in range(3))
        self.key = torch.nn.Linear(8, 8, bias=key_bias)
        self.scale, self.order = scale, order

    def forward(self, x):
        q, k, v = (p(x).reshape(2, 5, 2, 4).permute(self.order) for p in (self.query, self.key, self.value))
        y = torch.softmax(q @ k.transpose(-1, -2) * self.scale, -1) @ v
        return self.out(y.permute([self.order.index(i) for i in range(4)]).reshape(2, 5, 8))


@pytest.mark.parametrize(("options", "count"), [
    ({}, 1), ({"key_bias": False}, 0), ({"scale": 0.25}, 0), ({"order": (1, 2, 0, 3)}, 1),  # of the first axis
])  # fmt: skip
def test_attention_that_differs_is_no_such_layer(options, count):
    torch.manual_seed(0)
    _, kinds = _returned(Heads(**options).eval(), inputs=(torch.randn(2, 5, 8),))
    assert kinds.count("MultiHeadAttention") == count
    assert "Operators" not in kinds


def test_training_goes_on():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    model, _ = _returned(layer, inputs=(torch.randn(4, 5, 8),))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = R.normal(size=(4, 5, 8)).astype(np.float32)
    losses = model.fit(x, np.roll(x, 1, 1), batch_size=4, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
