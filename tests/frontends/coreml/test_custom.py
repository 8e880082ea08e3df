"""Custom layers, whose code is in an app: the error without a rule, and conversion with a user's rule."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import ConversionError, UnsafeFileError
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.frameworks import coremltools
from onnxbridge.frontends.coreml import frontend
from onnxbridge.runtime.mil import Interpreter

ct = coremltools()
from coremltools.models import datatypes  # noqa: E402
from coremltools.models.neural_network import NeuralNetworkBuilder  # noqa: E402

EXAMPLE = Path(__file__).parents[3] / "examples" / "kraken" / "kraken_layers.py"
rng = np.random.default_rng(5)


def builder_of(shape=(3, 8, 8)):
    return NeuralNetworkBuilder([("x", datatypes.Array(*shape))], [("y", datatypes.Array(*shape))])


def custom(builder, name, source, target, weights=(), **parameters):
    layer = builder.spec.neuralNetwork.layers.add(name=name, input=[source], output=[target]).custom
    layer.className = name
    for key, value in parameters.items():
        field = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}[type(value)]
        setattr(layer.parameters[key], field, value)
    for array in weights:
        layer.weights.add().floatValue.extend(array)
    return layer


def test_error_of_a_custom_layer_suggests_a_rule():
    builder = builder_of()
    custom(builder, "Swirl", "x", "a", [[1.0, 2.0]], turns=3, wide=True, mode="in")
    custom(builder, "Twirl", "a", "y")
    with pytest.raises(ConversionError) as caught:
        frontend.to_hub(builder.spec)
    problem, other = caught.value.problems
    assert other.op == "custom.Twirl"
    assert problem.op == "custom.Swirl" and "mode='in', turns=3, wide=True, weights of 2 numbers" in problem.reason
    assert '@rule("custom.Swirl") def layer(mil, x, *, mode, turns, wide, weights)' in problem.hint


def test_user_rule_for_a_custom_layer():
    @rule("custom.TestOnlyScale")
    def scale(mil, x, *, factor, weights):
        return mil.add(x=mil.mul(x=x, y=np.float32(factor)), y=mil.weight(weights[0].reshape(1, -1, 1, 1), "shift"))

    builder = builder_of()
    layer = custom(builder, "TestOnlyScale", "x", "y", [[1.0, 2.0, 3.0]], factor=2.5)
    x = rng.standard_normal((3, 8, 8)).astype(np.float32)
    expected = x * np.float32(2.5) + np.array([1, 2, 3], np.float32)[:, None, None]
    np.testing.assert_allclose(Interpreter(builder.spec).run({"x": x})["y"], expected, rtol=1e-6)
    made = onnxbridge.convert(builder.spec, "pytorch")
    assert made.report.passed
    np.testing.assert_allclose(made.model(torch.from_numpy(x)).detach().numpy(), expected, rtol=1e-6)
    layer.parameters["unknown"].intValue = 1
    with pytest.raises(ConversionError, match="unknown=1 is not supported"):
        frontend.to_hub(builder.spec)


def test_output_that_no_layer_writes_raises():
    builder = builder_of()
    builder.add_activation("relu", "RELU", "x", "z")
    with pytest.raises(UnsafeFileError, match="no layer writes the output y; the last one writes z"):
        frontend.to_hub(builder.spec)


class Rows(nn.Module):
    """An LSTM along the rows or the columns of an image."""

    def __init__(self, channels, size, columns):
        super().__init__()
        self.lstm, self.columns = nn.LSTM(channels, size, bidirectional=True, batch_first=True), columns

    def forward(self, x):
        x = x.transpose(2, 3) if self.columns else x
        n, c, h, w = x.shape
        y = self.lstm(x.permute(0, 2, 3, 1).reshape(n * h, w, c))[0].reshape(n, h, w, -1).permute(0, 3, 1, 2)
        return y.transpose(2, 3) if self.columns else y


def gates(tensor):
    """PyTorch stacks the gates as input, forget, cell, output; the file has the cell last."""
    return [p.detach().numpy() for p in (tensor.chunk(4)[i] for i in (0, 1, 3, 2))]


def add_rows(builder, rows, source, target):
    m = rows.lstm
    for suffix in ("", "_reverse"):  # the file has a single bias
        getattr(m, f"bias_ih_l0{suffix}").data.zero_()
    if rows.columns:
        builder.add_permute(f"{target}_turn", [0, 1, 3, 2], source, target)
        source = target
    builder.add_bidirlstm(
        target, gates(m.weight_hh_l0), gates(m.weight_ih_l0), gates(m.bias_hh_l0), gates(m.weight_hh_l0_reverse),
        gates(m.weight_ih_l0_reverse), gates(m.bias_hh_l0_reverse), m.hidden_size, m.input_size, [source], [target],
        output_all=True,
    )  # fmt: skip


def test_kraken_network_matches_pytorch():
    spec = importlib.util.spec_from_file_location("kraken_layers", EXAMPLE)
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(3, 8, 5, 2, 2), nn.GroupNorm(4, 8)
    across, down = Rows(8, 3, columns=False), Rows(6, 2, columns=True)
    builder = NeuralNetworkBuilder([("x", datatypes.Array(1, 3, 16, 12))], [("output", datatypes.Array(1, 4, 8, 6))])
    builder.spec.description.input[0].type.multiArrayType.shape[3] = 0  # a dynamic width, as in kraken's models
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    builder.add_convolution(
        "conv", 3, 8, 5, 5, 2, 2, "same", 1, conv.weight.detach().numpy().transpose(2, 3, 1, 0), conv.bias.detach().numpy(),
        True, input_name="x", output_name="a",
    )  # fmt: skip
    layer = custom(builder, "groupnorm", "a", "b", [norm.weight.tolist(), norm.bias.tolist()], in_channels=8, num_groups=4)
    assert layer.className == "groupnorm"
    add_rows(builder, across, "b", "across")
    add_rows(builder, down, "across", "down")
    source = layers.prepare(builder.spec)
    x = torch.randn(1, 3, 16, 20)
    expected = down(across(norm(conv(x)))).detach().numpy()
    found = Interpreter(source).run({"x": x.numpy()})["output"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for target in ("onnx", "pytorch"):
        made = onnxbridge.convert(source, target)
        assert made.report.passed
    np.testing.assert_allclose(made.model(x).detach().numpy(), expected, atol=1e-5)
