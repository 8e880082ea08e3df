"""Calls with JSON, as R makes them: replies, errors, and arrays in column-major order."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest

from onnxbridge.errors import UsageError
from onnxbridge.json_calls import call
from onnxbridge.json_calls.arrays import decoded, encoded
from onnxbridge.json_calls.onnx_parts import dtype_of, part_of


def ask(name, **given):
    return json.loads(call(json.dumps({"call": name, "with": given})))


def sent(array, kind="float64"):
    stored = {"float64": "<f8", "int32": "<i4", "bool": "<i4"}[kind]
    text = base64.b64encode(array.astype(stored).tobytes(order="F")).decode()
    return {"kind": kind, "shape": list(array.shape), "values": text}


def value(name, kind, *shape):
    return {"part": "value_info", "name": name, "elem_type": kind, "shape": list(shape)}


def model(op_type="Identity", kind="double", shape=(2, 3), **attributes):
    made = [
        {"part": "attribute", "key": k, "kind": "float", "values": [str(v)], "single": True} for k, v in attributes.items()
    ]  # fmt: skip
    node = {"part": "node", "op_type": op_type, "inputs": ["x"], "outputs": ["y"], "attributes": made}
    inputs, outputs = [value("x", kind, *shape)], [value("y", kind, *shape)]
    graph = {"part": "graph", "name": "g", "nodes": [node], "inputs": inputs, "outputs": outputs}
    return {"part": "model", "graph": graph}


def test_a_process_answers_a_request(tmp_path):
    request, reply = tmp_path / "request.json", tmp_path / "reply.json"
    request.write_text(json.dumps({"call": "version", "with": {}}))
    subprocess.run([sys.executable, "-m", "onnxbridge.json_calls", str(request), str(reply)], check=True)
    assert json.loads(reply.read_text())["result"]["onnx"] == onnx.__version__


def test_errors_are_replies():
    assert ask("signature", model="nowhere.onnx")["error"]["exit_code"] == 2
    assert ask("unheard of")["error"]["type"] == "InternalError"
    assert json.loads(call("no json"))["error"]["exit_code"] == 70


def test_runs_a_model_from_parts():
    x = np.arange(6.0).reshape(2, 3)
    (found,) = ask("run", model=model("Neg"), inputs={"x": sent(x)})["result"]
    assert (found["name"], found["dtype"], found["shape"]) == ("y", "float64", [2, 3])
    np.testing.assert_array_equal(decoded(found, "y"), -x)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.arange(24.0).reshape(2, 3, 4), "float64"), (np.array(2.5), "float64"), (np.zeros((0, 2)), "float64"),
        (np.array([[1, -2], [3, 4]], np.int16), "int32"), (np.array([2**40, -1]), "float64"),
        (np.array([True, False]), "bool"), (np.array([["a", "ü"], ["", "b"]], object), "string"),
        (np.array([1.5], ml_dtypes.bfloat16), "float64"), (np.array([1.5], np.float16), "float64"),
    ],
)  # fmt: skip
def test_arrays_come_back(array, kind):
    found = encoded(array)
    assert found["kind"] == kind
    expected = array.astype(object if kind == "string" else float)
    np.testing.assert_array_equal(decoded(json.loads(json.dumps(found)), "x"), expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UsageError, match=r"beyond 2\^53"):
        encoded(np.array([2**53 + 1]))
    with pytest.raises(UsageError, match="complex"):
        encoded(np.array([1j]))
    with pytest.raises(UsageError, match="missing values"):
        decoded(sent(np.array([-(2**31)]), "int32"), "x")
    with pytest.raises(UsageError, match="has 2 elements, and its shape is"):
        decoded(sent(np.zeros(2)) | {"shape": [3]}, "x")
    message = ask("run", model=model(kind="int8"), inputs={"x": sent(np.full((2, 3), 300.0))})["error"]["message"]
    assert message == "the input 'x' has numbers that int8 does not hold"


@pytest.mark.parametrize("name", [1, "FLOAT", "float", "float32", "Float32"])
def test_names_of_data_types(name):
    assert dtype_of(name) == onnx.TensorProto.FLOAT


@pytest.mark.parametrize("name", [0, 999, "", "undefined", "float33"])
def test_unknown_data_types(name):
    with pytest.raises(UsageError, match="is no data type; the names are float"):
        dtype_of(name)


def test_attributes_have_the_declared_type():
    node = part_of(model("Softmax", axis=-1.0))
    assert node.graph.node[0].attribute[0].i == -1
    with pytest.raises(UsageError, match=r"'axis': 0.5 is no integer"):
        part_of(model("Softmax", axis=0.5))


def test_a_file_keeps_its_opset(tmp_path):
    proto = part_of(model("Neg"))
    proto.opset_import[0].version = 13
    onnx.save(proto, tmp_path / "old.onnx")
    path = ask("save", model=str(tmp_path / "old.onnx"), path=str(tmp_path / "copy.onnx"))["result"]
    assert onnx.load(path).opset_import[0].version == 13
    assert '"" : 13' in ask("readable", part=path)["result"]
    assert ask("check", part=path)["result"] == "model"
    inferred = ask("infer_shapes", model=path, path=str(tmp_path / "inferred.onnx"))["result"]
    assert onnx.load(inferred).opset_import[0].version == 13


def test_a_part_that_is_not_valid_is_refused():
    node = {"part": "node", "op_type": "Relu", "inputs": [], "outputs": ["y"]}
    assert "not valid" in ask("check", part=node)["error"]["message"]
    assert "cannot be made" in ask("check", part={"part": "node"})["error"]["message"]
