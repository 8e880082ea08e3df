"""Where a framework computes something else than the graph that was read from its model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge import plugins
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.runtime.executor.executor import Executor
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


def test_onnx_runtime_shows_intermediate_values():
    model, x = network(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    shown: dict[str, np.ndarray] = {}
    assert plugins.frontend("onnx").watch(model, {"x": x}, lambda name, value: shown.update({name: value}))
    names = [o for n in model.graph.node for o in n.output]
    assert set(names) <= set(shown)
    for name, value in zip(names, Executor(model, precision="float64").run(names, {"x": x}), strict=True):
        np.testing.assert_allclose(shown[name], value, atol=1e-5)


def test_pytorch_shows_the_values_of_a_module_and_of_a_program():
    net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), torch.randn(5, 4)
    program = torch.export.export(net, (x,))
    for source in (net, program):
        shown: dict[str, np.ndarray] = {}
        frontend = plugins.frontend("pytorch")
        assert frontend.watch(source, {"input": x.numpy()}, lambda name, value, shown=shown: shown.update({name: value}))
        np.testing.assert_allclose(shown["tanh"], net[:2](x).detach().numpy(), rtol=1e-6)


def test_the_interpreter_of_core_ml_shows_intermediate_values(tmp_path):
    model, x = network(), np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)
    onnxbridge.convert(model, "coreml", inputs="x:float32[2,3,8,8]", output=tmp_path / "net.mlpackage", verify=False)
    shown: dict[str, np.ndarray] = {}
    assert plugins.frontend("coreml").watch(tmp_path / "net.mlpackage", {"x": x}, lambda name, value: shown.update({name: value}))
    names = [o for n in model.graph.node for o in n.output]
    assert len(set(names) & set(shown)) > len(names) / 2  # the backend keeps the names of the hub
    for name, value in zip(names, Executor(model, precision="float64").run(names, {"x": x}), strict=True):
        if name in shown:
            np.testing.assert_allclose(shown[name], value, atol=1e-4)
