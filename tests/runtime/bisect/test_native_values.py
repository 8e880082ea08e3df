"""Where a framework computes something else than the graph that was read from its model."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge import plugins
from onnxbridge.frontends.mxnet.ops import rule as mxnet_rule
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.frontends.tensorflow.ops import rule as tensorflow_rule
from onnxbridge.runtime.executor.executor import Executor
from tests.frontends.mxnet import build
from tests.runtime.bisect.models import network


@torch.library.custom_op("onnxbridge_tests::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


@softsign.register_fake
def _(x):
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.ops.onnxbridge_tests.softsign(self.first(x))
        return self.second(hidden.relu())


@pytest.fixture
def wrong_rule():
    """A rule of a user that reads the operator as Tanh."""
    rule("onnxbridge_tests::softsign")(lambda op, x: op.Tanh(x))
    yield
    del rule["onnxbridge_tests::softsign"]


def test_a_misread_operator_of_pytorch_is_named(wrong_rule):
    net, x = Net(), torch.randn(5, 4)
    candidate = onnxbridge.convert(net, inputs=(x,), verify=False).model
    found = onnxbridge.bisect(net, candidate, (x,))
    assert found.first.candidate_op == "Tanh" and found.first.location.file.endswith("test_native_values.py")
    assert "an error in reading the model, or in PyTorch" in found.reason
    assert found.first.reference.max() < found.first.candidate.max()


def values_of(model, names, x):
    """The values in the model's own precision and in float64."""
    return [Executor(model, precision=precision, native=False).run(names, {"x": x}) for precision in (None, "float64")]


def allowed(rounded, exact):
    """What rounding explains for any order of sums, from one order and the last place."""
    return 16 * (np.abs(rounded - exact).max() + 2.0**-24 * np.abs(exact).max())


def test_onnx_runtime_shows_intermediate_values():
    model, x = network(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    shown: dict[str, np.ndarray] = {}
    assert plugins.frontend("onnx").watch(model, {"x": x}, lambda name, value: shown.update({name: value}))
    names = [o for n in model.graph.node for o in n.output]
    assert set(names) <= set(shown)
    own, exact = values_of(model, names, x)
    for name, rounded, value in zip(names, own, exact, strict=True):
        np.testing.assert_allclose(shown[name], value, rtol=0, atol=allowed(rounded, value))


def test_pytorch_shows_the_values_of_a_module_and_of_a_program():
    net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), torch.randn(5, 4)
    program = torch.export.export(net, (x,))
    for source in (net, program):
        shown: dict[str, np.ndarray] = {}
        frontend = plugins.frontend("pytorch")
        assert frontend.watch(source, {"input": x.numpy()}, lambda name, value, shown=shown: shown.update({name: value}))
        np.testing.assert_array_equal(shown["tanh"], net[:2](x).detach().numpy())


def test_the_interpreter_of_core_ml_shows_intermediate_values(tmp_path):
    model, x = network(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    onnxbridge.convert(model, "coreml", inputs="x:float32[2,3,8,8]", output=tmp_path / "net.mlpackage", verify=False)
    shown: dict[str, np.ndarray] = {}
    assert plugins.frontend("coreml").watch(tmp_path / "net.mlpackage", {"x": x}, lambda name, value: shown.update({name: value}))
    names = [o for n in model.graph.node for o in n.output]
    assert len(set(names) & set(shown)) > len(names) / 2  # the backend keeps the names of the hub
    own, exact = values_of(model, names, x)
    for name, rounded, value in zip(names, own, exact, strict=True):
        if name in shown:
            np.testing.assert_allclose(shown[name], value, rtol=0, atol=allowed(rounded, value))


@pytest.fixture
def wrong_rules():
    """Rules that read an operator of TensorFlow and one of MXNet as Tanh."""
    right = [(rules, op, rules[op].lower) for rules, op in ((tensorflow_rule, "BesselI0e"), (mxnet_rule, "gammaln"))]
    for rules, op, _ in right:
        del rules[op]
        rules(op)(lambda op, x: op.Tanh(x))
    yield
    for rules, op, lower in right:
        del rules[op]
        rules(op)(lower)


def keras_net(tf):
    layers = tf.keras.layers
    return tf.keras.Sequential([tf.keras.Input((6,)), layers.Dense(8), layers.Lambda(tf.math.bessel_i0e), layers.Dense(3)])


@pytest.mark.parametrize("kind", ["live", "SavedModel"])
def test_a_misread_operator_of_tensorflow_is_named(kind, wrong_rules, tmp_path):
    import tensorflow as tf

    source = keras_net(tf)
    if kind == "SavedModel":
        source.export(tmp_path / "saved", verbose=False)
        source = str(tmp_path / "saved")
    candidate = onnxbridge.convert(source, verify=False).model
    found = onnxbridge.bisect(source, candidate)
    assert found.first.candidate_op == "Tanh" and "bessel_i0e" in found.first.name
    assert "an error in reading the model, or in TensorFlow" in found.reason
    assert found.first.candidate.min() < 0 <= found.first.reference.min()


@pytest.mark.skipif("ONNXBRIDGE_MXNET_PYTHON" not in os.environ, reason="needs MXNet: set ONNXBRIDGE_MXNET_PYTHON")
def test_a_misread_operator_of_mxnet_is_named(wrong_rules, tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"arg:w": rng.normal(size=(8, 6)).astype(np.float32), "arg:v": rng.normal(size=(3, 8)).astype(np.float32)}
    nodes = [
        build.variable("data"), build.variable("w"),
        build.operator("FullyConnected", "first", [(0, 0), (1, 0)], {"num_hidden": 8, "no_bias": True}),
        build.operator("gammaln", "special", [(2, 0)]),
        build.variable("v"),
        build.operator("FullyConnected", "second", [(3, 0), (4, 0)], {"num_hidden": 3, "no_bias": True}),
    ]  # fmt: skip
    files = build.save(tmp_path, nodes, [(5, 0)], arrays)
    candidate = onnxbridge.convert(files, inputs="data:float32[5,6]", verify=False).model
    found = onnxbridge.bisect(files, candidate, "data:float32[5,6]")
    assert found.first.candidate_op == "Tanh" and found.first.name == "special_output"
    assert "an error in reading the model, or in MXNet" in found.reason
    assert np.abs(found.first.candidate).max() <= 1 < np.abs(found.first.reference).max()


def test_tensorflow_shows_intermediate_values(wrong_rules):
    import tensorflow as tf

    net, x = keras_net(tf), np.random.default_rng(1).normal(size=(2, 6)).astype(np.float32)
    shown: dict[str, np.ndarray] = {}
    hub = onnxbridge.load(net)
    name = hub.graph.inputs[0].name
    assert plugins.frontend("tensorflow").watch(net, {name: x}, lambda name, value: shown.update({name: value}))
    (tanh,) = (v.name for node in hub.graph for v in node.outputs if node.op_type == "Tanh")
    np.testing.assert_array_equal(shown[tanh], np.asarray(tf.math.bessel_i0e(net.layers[0](x))))
