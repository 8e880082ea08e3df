"""Recurrent layers with any optional inputs omitted: every backend and the executor match ONNX Runtime."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import onnxbridge
from onnxbridge import plugins
from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor
from tests import recurrent_states as states

BACKENDS = ["pytorch", "tensorflow", "mxnet", "coreml"]


@pytest.mark.slow
@pytest.mark.parametrize(("op", "name"), states.CASES)
@pytest.mark.parametrize("to", BACKENDS)
def test_backend(to, op, name):
    proto, feeds, expected = states.case(op, name)
    options = {"compute_precision": "fp32"} if to == "coreml" else {}
    try:
        conversion = onnxbridge.convert(proto, to=to, verify=False, **options)
    except ConversionError:
        unsupported = {"lengths", "clip", "peepholes", "coupled"} | (set(states.VARIANTS) if op == "GRU" else set())
        assert to == "mxnet" and name in unsupported | {
            "reset after, lengths"
        }  # MXNet has no loops, and only one variant of each layer
        return
    backend = plugins.backend(to)
    states.assert_same(backend.runner(conversion.artifact)(feeds), expected)


@pytest.mark.parametrize(("op", "name"), states.CASES)
@pytest.mark.parametrize("decomposed", [False, True], ids=["native", "decomposed"])
@pytest.mark.parametrize("precision", [None, "float64"], ids=["fused", "float64"])
def test_executor(precision, decomposed, op, name):
    proto, feeds, expected = states.case(op, name)
    executor = Executor(proto, precision=precision, expanded=[op] if decomposed else [])
    states.assert_same(executor.run(None, feeds), expected)


class OneState(torch.nn.Module):
    """A bidirectional LSTM of two layers of which one initial state is an input and the other zeros."""

    def __init__(self, given):
        super().__init__()
        self.given, self.rnn = given, torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x, state):
        zeros = torch.zeros_like(state)
        y, (h, c) = self.rnn(x, (state, zeros) if self.given == "h" else (zeros, state))
        return y, h, c


@pytest.mark.parametrize("given", ["h", "c"])
@pytest.mark.parametrize("emit", ["program", "source"])
def test_saved_stack_with_dynamic_batch(given, emit, tmp_path):
    torch.manual_seed(0)
    module, dynamic = OneState(given).eval(), {"x": {0: "N"}, "state": {1: "N"}}
    inputs = torch.randn(2, 5, 3), torch.randn(4, 2, 4)
    hub = onnxbridge.load(module, inputs=inputs, dynamic=dynamic)
    conversion = onnxbridge.convert(hub, to="pytorch", emit=emit)  # verifies against ONNX Runtime
    (path, *_) = conversion.save(tmp_path / "net.pt2")
    if emit == "program":
        saved = torch.export.load(path).module()
    else:
        spec = importlib.util.spec_from_file_location("net", path)
        net = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(net)
        saved = net.load()
    larger = torch.randn(3, 5, 3), torch.randn(4, 3, 4)
    with torch.no_grad():
        for got, expected in zip(saved(*larger), module(*larger), strict=True):
            torch.testing.assert_close(got, expected)
