"""`verify --via`: a model goes from framework to framework and is compared with the original at each step."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.api import RoundTrip, Step, round_trip
from onnxbridge.errors import ConversionError, UsageError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files


def test_each_step_is_compared_with_the_original(cli, network_file):
    ran = cli("verify", network_file, "--via", "onnx,pytorch,onnx", "--samples", 2)
    lines = ran.out.splitlines()
    assert ran.code == 0 and len(lines) == 3 and all(line.startswith("PASSED  net.onnx -> onnx") for line in lines)
    assert "net.onnx -> onnx -> pytorch -> onnx: probabilities max abs" in lines[2]
    found = json.loads(cli("verify", network_file, "--via", "torch", "--json").out)
    assert found["passed"] and [s["name"] for s in found["steps"]] == ["pytorch"]
    assert found["steps"][0]["verification"]["samples"] == 3


@pytest.mark.slow
def test_all_frameworks_one_after_the_other(network_file):
    found = round_trip(network_file, ["mxnet", "coreml", "tensorflow", "pytorch", "onnx"])
    assert found.agrees, str(found)


def test_the_round_trip_ends_where_a_step_cannot_be_converted(cli, tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.INT32, [4])
    onnx_files.write(op.model([x], [op.output(op.BitCast(x, to=ir.DataType.UINT32), "y")]), tmp_path / "n.onnx")
    ran = cli("verify", tmp_path / "n.onnx", "--via", "onnx,mxnet,onnx")
    lines = ran.out.splitlines()
    assert ran.code == ConversionError.exit_code and lines[0].startswith("PASSED  n.onnx -> onnx:")
    assert lines[1].startswith("FAILED  n.onnx -> onnx -> mxnet: ONNX to MXNet: ")
    assert lines[2].endswith("mxnet -> onnx: not reached")


def test_the_first_step_that_differs_is_named(network_file, network, tmp_path):
    weight = network.graph.initializers["fc.weight"]
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.1), name="fc.weight")
    onnx_files.write(network, tmp_path / "wrong.onnx")
    right, wrong = (onnxbridge.verify(network_file, path) for path in (network_file, tmp_path / "wrong.onnx"))
    found = RoundTrip("net", (Step("onnx", right), Step("pytorch", wrong), Step("onnx", wrong)))
    assert found.verdict == "FAILED" and isinstance(found.failure, VerificationError)
    assert str(found.failure) == "step 2 (pytorch) is the first that does not compute the same"
    assert str(found).count("FAILED") == 2 and "worst: sample" in str(found)


def test_data_and_metrics_reach_every_step(network_file):
    feeds = ({"x": np.ones((n, 3, 8, 8), np.float32)} for n in (1, 2))
    found = round_trip(network_file, "onnx,pytorch", data=feeds, metrics="cosine>=0.99")
    for step in found.steps:
        assert step.report.samples == 2 and step.report.outputs[0].metrics["cosine"] > 0.99
    assert str(found).count("(at least 0.99)") == 2


def test_wrong_arguments_are_refused_first(cli, network_file):
    with pytest.raises(UsageError, match="there is no backend 'tensorlow'; installed: "):
        round_trip(network_file, "onnx,tensorlow")
    with pytest.raises(UsageError, match="at least one target"):
        round_trip(network_file, " , ")
    ran = cli("verify", network_file, network_file, "--via", "onnx", "--golden", "g.npz")
    assert ran.code == 2 and "leave out CANDIDATE and --golden" in ran.err
    with pytest.raises(UsageError, match="no output 'z'"):
        round_trip(network_file, "onnx", rtol={"z": 1.0})
