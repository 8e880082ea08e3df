"""LSTM, GRU and RNN become Keras layers, with their weights, states, directions and activations."""

from __future__ import annotations

import keras
import numpy as np
import onnx
import pytest
import torch
from torch import nn

import onnxbridge


def kinds(model):
    return [type(layer).__name__ for layer in model.layers]


class Last(nn.Module):
    """The last state of a recurrent layer, or of its both directions."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        state = self.layer(x)[1]
        return state[0] if isinstance(state, tuple) else state


class Rows(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Everything(nn.Module):
    """With initial states, and all results."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, h, c):
        y, (h, c) = self.layer(x, (h, c))
        return y, h, c


LAYERS = {
    "LSTM": nn.LSTM(5, 4, batch_first=True),
    "LSTM without bias": nn.LSTM(5, 4, bias=False, batch_first=True),
    "GRU": nn.GRU(5, 4, batch_first=True),
    "SimpleRNN": nn.RNN(5, 4, batch_first=True),
    "SimpleRNN of relu": nn.RNN(5, 4, nonlinearity="relu", batch_first=True),
    "LSTM in both directions": nn.LSTM(5, 4, bidirectional=True, batch_first=True),
    "GRU in both directions": nn.GRU(5, 4, bidirectional=True, batch_first=True),
    "LSTM of three layers": nn.LSTM(5, 4, num_layers=3, batch_first=True),
    "LSTM with the time first": nn.LSTM(5, 4),
}


@pytest.mark.parametrize("results", [Rows, Last], ids=["rows", "last"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pytorch(name, results):
    torch.manual_seed(0)
    result = onnxbridge.convert(results(LAYERS[name]).eval(), "tensorflow", inputs=(torch.randn(3, 6, 5),))
    assert result.report.passed
    kind = "Bidirectional" if "both" in name else name.split()[0]
    assert kinds(result.model).count(kind) == (3 if "three" in name else 1)
    assert not any(k == "Operators" for k in kinds(result.model))


def test_initial_states_and_all_results():
    torch.manual_seed(0)
    inputs = (torch.randn(3, 6, 5), torch.randn(1, 3, 4), torch.randn(1, 3, 4))
    result = onnxbridge.convert(Everything(nn.LSTM(5, 4, batch_first=True)).eval(), "tensorflow", inputs=inputs)
    assert result.report.passed and "LSTM" in kinds(result.model)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: keras.layers.LSTM(4, return_sequences=True, recurrent_activation="hard_sigmoid"),
        lambda: keras.layers.GRU(4, reset_after=False, activation="relu"),
        lambda: keras.layers.SimpleRNN(4, activation="elu"),
        lambda: keras.layers.LSTM(4, go_backwards=True, return_sequences=True),
        lambda: keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True)),
    ],
)
def test_layers_of_keras_come_back(layer):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((None, 5)), layer()])
    result = onnxbridge.convert(model, "tensorflow")
    assert result.report.agrees
    assert kinds(result.model).count(type(model.layers[0]).__name__) == 1
    x = np.random.default_rng(0).normal(size=(2, 7, 5)).astype(np.float32)
    np.testing.assert_allclose(result.model(x), model(x), rtol=1e-5, atol=1e-6)


def test_what_keras_has_no_layer_for_runs_as_an_operator():
    """Coupled gates, other activations for the gates of one layer, and lengths of sequences."""
    from onnxbridge.hub.builder.builder import Builder

    op = Builder()
    rng = np.random.default_rng(0)
    x = op.input("x", op.constant(np.float32(0)).dtype, [6, 3, 5])
    W, R = (op.constant(rng.normal(size=(1, 16, n)).astype(np.float32), name) for n, name in ((5, "W"), (4, "R")))
    y = op.LSTM(x, W, R, None, np.array([6, 2, 4], np.int32), hidden_size=4, outputs=3)[0]
    result = onnxbridge.convert(op.model([x], [op.output(y, "y")]), "tensorflow")
    assert result.report.agrees and "LSTM" not in kinds(result.model)


def test_a_converted_layer_trains_and_is_saved(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(Last(nn.LSTM(5, 8, batch_first=True)), nn.Flatten(0, 1), nn.Linear(8, 1)).eval()
    model = onnxbridge.convert(net, "tensorflow", inputs=(torch.randn(4, 6, 5),), dynamic={"input": {0: "n"}}, verify=False).model
    x = np.random.default_rng(0).normal(size=(64, 6, 5)).astype(np.float32)
    target = x[:, -1].sum(axis=1, keepdims=True)
    model.compile(optimizer=keras.optimizers.Adam(0.02), loss="mse")
    losses = model.fit(x, target, epochs=20, batch_size=64, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    model.save(tmp_path / "net.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "net.keras")(x), model(x), rtol=1e-5, atol=1e-6)


def test_a_second_layer_that_reads_what_is_inside_of_the_first():
    """Over one step of one sequence, a transposition could belong to the layer before it and to the one after it."""
    rng = np.random.default_rng(0)
    shapes = {"w": (2, 3, 5), "r": (2, 3, 3), "w2": (1, 9, 6), "r2": (1, 9, 3)}
    weights = [onnx.numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in shapes.items()]
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 20]>
        g (float[1,1,5] x) => (float[1,1,1,3] z)
        <float[2,3,5] w, float[2,3,3] r, float[1,9,6] w2, float[1,9,3] r2, int64[3] sizes = {0, 0, -1}> {
          y = RNN <direction = "bidirectional", hidden_size = 3> (x, w, r)
          t = Transpose <perm = [2, 0, 1, 3]> (y)
          s = Reshape (t, sizes)
          u = Transpose <perm = [1, 0, 2]> (s)
          z = GRU <hidden_size = 3> (u, w2, r2)
        }""")
    model.graph.initializer.extend(weights)
    assert onnxbridge.convert(model, to="tensorflow").report.agrees
