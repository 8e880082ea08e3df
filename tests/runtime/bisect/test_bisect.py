"""Bisection of pairs of models with one planted fault: the value that is named, how values are paired, and the reproduction."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import onnxbridge
from onnxbridge.errors import UsageError
from tests.runtime.bisect.models import channels_last, network, renamed, with_attribute, with_weight


def scaled(array):
    return array * 1.1


def without_first_channel(array):
    array = array.copy()
    array[0] = 0
    return array


FAULTS = {
    "conv1": lambda m: with_weight(m, "w1", scaled),
    "conv2": lambda m: with_weight(m, "w2", without_first_channel),
    "hidden": lambda m: with_weight(m, "b3", np.zeros_like),
    "norm": lambda m: with_attribute(m, "norm", "epsilon", 0.5),
    "logits": lambda m: with_weight(m, "w4", scaled),
}


@pytest.mark.parametrize("value", FAULTS)
@pytest.mark.parametrize("form", [lambda m: m, renamed, channels_last], ids=["same names", "renamed", "other layout"])
def test_the_faulty_operator_is_named(value, form):
    reference = network()
    found = onnxbridge.bisect(reference, form(FAULTS[value](reference)))
    assert not found.report.agrees
    assert found.first.name == value
    assert found.first.op == next(n.op_type for n in reference.graph.node if value in n.output)
    assert found.paired == ("by name" if form(reference) is reference else "by what they hold")
    assert max(found.runs_of) <= 4  # ceil(log2(11))


def test_arrays_and_tolerance_at_the_divergence():
    reference = network()
    first = onnxbridge.bisect(reference, with_weight(reference, "w4", scaled)).first
    np.testing.assert_allclose(first.candidate, 1.1 * first.reference, rtol=1e-6)
    assert 0 < first.comparison.tolerance.atol < 1e-3 * first.comparison.max_abs


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("conv1", "W (w1) is 1.1 times as large"),
        ("conv2", "W (w2) is zero in 72 of 576 elements"),
        ("hidden", "C (b3) is zero throughout"),
        ("norm", "epsilon is 0.5 instead of 1e-05"),
    ],
)
def test_causes(value, cause):
    reference = network()
    assert onnxbridge.bisect(reference, FAULTS[value](reference)).first.causes == (cause,)


def test_models_that_agree_have_no_divergence():
    found = onnxbridge.bisect(network(), renamed(network()))
    assert found.first is None and found.report.agrees
    assert "nothing to find" in str(found)
    with pytest.raises(UsageError, match="no divergence"):
        found.save("nowhere")


def test_two_independent_faults_are_both_named():
    reference = network()
    found = onnxbridge.bisect(reference, with_weight(with_weight(reference, "w4", scaled), "w1", scaled))
    assert found.first.name == "conv1"  # `logits` reads values that differ already


def test_given_inputs_are_used():
    reference = network()
    x = np.ones((1, 3, 8, 8), np.float32)
    found = onnxbridge.bisect(reference, with_weight(reference, "w1", scaled), {"x": x})
    np.testing.assert_array_equal(found.feeds["x"], x)


def test_saved_reproduction_runs(tmp_path):
    reference = network()
    found = onnxbridge.bisect(reference, renamed(with_weight(reference, "w2", scaled)))
    files = {path.name for path in found.save(tmp_path / "repro")}
    assert files == {
        "reference.onnx", "candidate.onnx", "reference_inputs.npz", "candidate_inputs.npz", "reproduce.py", "README.txt",
    }  # fmt: skip
    nodes = [n.op_type for n in onnx.load(tmp_path / "repro" / "reference.onnx").graph.node]
    assert nodes == ["Conv"]
    ran = subprocess.run([sys.executable, "reproduce.py"], cwd=tmp_path / "repro", capture_output=True, text=True, check=True)
    assert float(ran.stdout.split()[-1]) == pytest.approx(found.first.comparison.max_abs, rel=1e-3)
    with pytest.raises(UsageError, match="repro"):
        found.save(tmp_path / "repro")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)
        self.head = nn.Linear(4 * 4 * 4, 5)

    def forward(self, x):
        x = self.second(torch.relu(self.norm(self.first(x))))
        return self.head(x.flatten(1)).softmax(-1)


@pytest.mark.parametrize(("to", "name"), [("pytorch", "net.pt2"), ("tensorflow", "net"), ("coreml", "net.mlpackage")])
def test_artifacts_of_backends(tmp_path, to, name):
    """The artifact is converted from a network with another weight, and compared with the PyTorch module."""
    torch.manual_seed(0)
    net, x = Net().eval(), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        net.norm.running_mean.normal_()
        good = net.second.weight.clone()
        net.second.weight.mul_(1.1)
        onnxbridge.convert(net, to, inputs=(x,), output=tmp_path / name, verify=False)
        net.second.weight.copy_(good)
    first = onnxbridge.bisect(net, tmp_path / name, (x,)).first
    assert first.op == "Conv" and first.location.scope == "second" and first.location.file.endswith("test_bisect.py")


def test_a_candidate_that_cannot_be_compared_is_a_usage_error(tmp_path):
    other = with_weight(network(), "w1", scaled)
    other.graph.input.add().CopyFrom(onnx.helper.make_tensor_value_info("more", 1, [1]))
    with pytest.raises(UsageError, match="inputs"):
        onnxbridge.bisect(network(), other)
