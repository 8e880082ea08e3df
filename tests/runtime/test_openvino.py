"""A second device: ONNX Runtime with OpenVINO, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess

import onnx
import pytest
from onnx import TensorProto, helper

from onnxbridge.runtime.devices import of_reference

PYTHON = os.environ.get("ONNXBRIDGE_OPENVINO_PYTHON", "")
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])


def write(path, nodes, output, initializers=()):
    graph = helper.make_graph(nodes, "g", [X], [output], list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return str(path)


def verify(first, second, *options):
    command = [PYTHON, "-m", "onnxbridge", "verify", first, second, "--device", "openvino", "--json", *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(ran.stdout)


@pytest.fixture
def network(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], [((i * 7) % 11 - 5) / 10 for i in range(108)])
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Gelu", ["c"], ["g"])]
    nodes.append(helper.make_node("Softmax", ["g"], ["y"], axis=1))
    return write(tmp_path / "net.onnx", nodes, helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 6, 6]), [weight])


def test_the_tolerance_holds_on_another_device(network):
    found = verify(network, network)
    assert found["verdict"] == "PASSED" and found["candidate"] == "ONNX (openvino)" and found["reference"] == "ONNX"
    assert found["outputs"][0]["max_abs"] > 0  # it is another computation, not the same one twice


def test_a_fault_is_found_on_another_device(network, tmp_path):
    proto = onnx.load(network)
    proto.graph.node[1].op_type = "Relu"
    onnx.save(proto, tmp_path / "wrong.onnx")
    assert verify(network, str(tmp_path / "wrong.onnx"))["verdict"] == "FAILED"


def test_what_falls_back_to_the_cpu_is_said(tmp_path):
    one = [helper.make_node("Unique", ["x"], ["y"])]
    alone = write(tmp_path / "unique.onnx", one, helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"]))
    found = verify(alone, alone)
    assert found["verdict"] == "WEAK" and found["candidate"] == "ONNX (cpu)"
    assert "openvino computes none of its 1 nodes (Unique)" in " ".join(found["weak"])
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Unique", ["t"], ["y"])]
    mixed = write(tmp_path / "mixed.onnx", nodes, helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"]))
    assert verify(mixed, mixed)["candidate"] == "ONNX (openvino, and 1 of 2 nodes on the CPU: Unique)"


def test_doctor_knows_this_onnxruntime():
    ran = subprocess.run([PYTHON, "-m", "onnxbridge", "doctor", "--json"], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    assert found["devices"] == ["openvino", "cpu"] and found["frameworks"]["onnxruntime"]["ok"]


@pytest.mark.parametrize(("device", "reference"), [("auto", "auto"), ("cpu", "cpu"), ("cuda", "cpu"), ("openvino", "cpu")])
def test_the_device_of_the_other_model(device, reference):
    assert of_reference(device) == reference
