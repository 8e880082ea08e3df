"""The command line as a user meets it: results on stdout, errors as one sentence, exit codes."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import resource
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxbridge.hub.io import onnx_files


def proto_of(nodes, inputs=(), outputs=("y",), weights=(), opset=13):
    def value(name):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [4])

    graph = helper.make_graph(nodes, "g", [value(i) for i in inputs], [value(o) for o in outputs], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_convert_verifies_and_writes(cli, network_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = cli("convert", network_file, "-o", "out.onnx", "--opset", 20)
    assert ran.code == 0 and ran.err == ""
    assert ran.out.startswith("PASSED") and "ok   probabilities float32" in ran.out and "wrote out.onnx" in ran.out
    assert onnx.load("out.onnx").opset_import[0].version == 20


def test_json_and_report_hold_the_same(cli, network_file, tmp_path):
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx", "--json", "--report", tmp_path / "r.json")
    found = json.loads(ran.out)
    assert found["verification"]["passed"] and found["target"] == "onnx"
    assert json.loads((tmp_path / "r.json").read_text()) == found


def test_nothing_is_overwritten_without_force(cli, network_file):
    before = network_file.read_bytes()
    ran = cli("convert", network_file, "-o", network_file)
    assert ran.code == 2 and "belongs to the source" in ran.err and network_file.read_bytes() == before
    there = network_file.with_name("there.onnx")
    there.write_text("something else")
    assert cli("convert", network_file, "-o", there).code == 2 and there.read_text() == "something else"
    assert cli("convert", network_file, "-o", there, "--force").code == 0 and onnx.load(there)


def test_a_failed_verification_exits_1_and_keeps_the_artifact(cli, network_file, tmp_path, monkeypatch):
    from onnxbridge.backends.onnx import OnnxBackend

    right = OnnxBackend.runner

    def wrong(self, artifact, device):
        run = right(self, artifact, device)
        return lambda feeds: {k: v + np.float32(0.01) for k, v in run(feeds).items()}

    monkeypatch.setattr(OnnxBackend, "runner", wrong)
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx")
    assert ran.code == 1 and ran.out.startswith("FAILED") and "does not compute the same" in ran.err
    assert not (tmp_path / "o.onnx").exists() and (tmp_path / "o.onnx.failed").exists()


def test_verify_compares_two_files(cli, network, network_file, tmp_path):
    assert cli("verify", network_file, network_file).code == 0
    network.graph.initializers["fc.weight"].const_value.numpy()[0, 0] += 0.5
    onnx_files.write(network, tmp_path / "other.onnx")
    ran = cli("verify", network_file, tmp_path / "other.onnx")
    assert ran.code == 1 and "FAIL probabilities" in ran.out
    np.savez(tmp_path / "data.npz", x=np.zeros((1, 3, 8, 8), np.float32))
    assert cli("verify", network_file, tmp_path / "other.onnx", "--data", tmp_path / "data.npz").code == 0


def test_verify_and_bisect_take_a_factory(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "factory_of_verify.py").write_text("import torch\n\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    given = ["--inputs", "input:float32[N,4]"]
    assert cli("convert", "factory_of_verify:make", "-o", "net.onnx", *given).code == 0
    for command in ("verify", "bisect"):
        ran = cli(command, "factory_of_verify:make", "net.onnx", *given)
        assert ran.code == 0, ran.err
    assert "no such file" in cli("verify", "missing.onnx", "net.onnx").err


def test_inspect_and_check(cli, network_file):
    ran = cli("inspect", network_file)
    assert "input   x: float32[N, 3, 8, 8]" in ran.out and "Conv 1" in ran.out
    found = json.loads(cli("inspect", network_file, "--json").out)
    assert found["operators"]["Conv"] == 1 and found["weights"]["tensors"] == 2


def test_a_converted_file_says_where_it_comes_from(cli, network_file, tmp_path):
    cli("convert", network_file, "-o", tmp_path / "out.onnx")
    found = json.loads(cli("inspect", tmp_path / "out.onnx", "--json").out)["metadata"]
    assert found["onnxbridge.source"] == "net.onnx"
    assert found["onnxbridge.source.sha256"] == hashlib.sha256(network_file.read_bytes()).hexdigest()


def test_check(cli, network_file):
    ran = cli("check", network_file, "--to", "onnx")
    assert ran.code == 0 and ran.out.startswith("no problems")


def test_check_exits_with_3_where_something_is_in_the_way(cli, tmp_path):
    from onnx import parser, save

    texts = '<ir_version: 8, opset_import: ["" : 17]> g (string[2] x) => (string[2] y) { y = Identity (x) }'
    save(parser.parse_model(texts), tmp_path / "texts.onnx")
    ran = cli("check", tmp_path / "texts.onnx", "--to", "coreml")
    assert ran.code == 3 and "Core ML has no tensors of string" in ran.out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["convrt"], "No such command 'convrt'"),
        (["convert"], "Missing argument 'SOURCE'"),
        (["convert", "x.onnx", "--bad"], "No such option"),
        (["convert", "nowhere.onnx"], "no such file"),
        (["convert", "{net}", "--to", "caffe"], "there is no backend 'caffe'"),
        (["convert", "{net}", "--inputs", "x"], "x:float32[N,3,224,224]"),
        (["convert", "{net}", "--inputs", "z:float32[1]", "-o", "{tmp}/o"], "the model has no input 'z'"),
        (["convert", "{net}", "--inputs", "x:float32[1,4,8,8]", "-o", "{tmp}/o"], "[N, 3, 8, 8]; [1, 4, 8, 8] does not fit"),
        (["convert", "{net}", "--dynamic", "N=9..1"], "N=1..64"),
        (["convert", "{net}", "--device", "abacus", "-o", "{tmp}/o"], "unknown device 'abacus'"),
        (["convert", "{net}", "-o", "{tmp}/no/folder/o.onnx"], "there is no folder"),
        (["convert", "{net}", "--opset", "3000", "-o", "{tmp}/o"], "opset 3000"),
        (["coverage", "Rleu"], "'Rleu' is not an ONNX operator"),
    ],
)
def test_wrong_usage_exits_2_with_one_sentence(cli, network_file, tmp_path, args, message):
    ran = cli(*[a.format(net=network_file, tmp=tmp_path) for a in args])
    assert ran.code == 2 and message in ran.err and "Traceback" not in ran.err and ran.out == ""


def hostile(tmp_path, kind):
    path = tmp_path / "model.onnx"
    if kind == "truncated":
        weight = numpy_helper.from_array(np.ones(1000, np.float32), "w")
        whole = proto_of([helper.make_node("Add", ["x", "w"], ["y"])], ["x"], weights=[weight]).SerializeToString()
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "pickle":
        path.write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    elif kind == "external":
        w = TensorProto(name="w", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, text in {"location": "../../etc/passwd", "offset": "0", "length": "16"}.items():
            w.external_data.add(key=key, value=text)
        path.write_bytes(proto_of([helper.make_node("Add", ["x", "w"], ["y"])], ["x"], weights=[w]).SerializeToString())
    elif kind == "bomb":
        size = numpy_helper.from_array(np.array([2**36]), "s")
        path.write_bytes(proto_of([helper.make_node("ConstantOfShape", ["s"], ["y"])], weights=[size]).SerializeToString())
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unsupported":
        nodes = [helper.make_node(f"Unheard{i}", [f"t{i}"], [f"t{i + 1}"], domain="acme", name=f"node_{i}") for i in range(5)]
        model = proto_of(nodes, ["t0"], ["t5"])
        model.opset_import.add(domain="acme", version=1)
        path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("truncated", 4, "model.onnx"),
        ("pickle", 4, "pickle"),
        ("external", 4, "leaves the model's folder"),
        ("bomb", 6, "ConstantOfShape"),
        ("pipe", 4, "model.onnx"),
    ],
)
def test_hostile_files_end_at_once_with_one_sentence(cli, tmp_path, kind, code, message):
    start = time.process_time()
    ran = cli("convert", hostile(tmp_path, kind), "-o", tmp_path / "out.onnx")
    assert time.process_time() - start < 2
    assert ran.code == code and message in ran.err and len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "out.onnx").exists()


def test_every_unknown_operator_is_listed_with_its_node(cli, tmp_path):
    ran = cli("convert", hostile(tmp_path, "unsupported"), "--to", "pytorch", "-o", tmp_path / "out.pt2")
    assert ran.code == 3 and "5 operators cannot be converted" in ran.err
    for i in range(5):
        assert f"acme::Unheard{i} x1: no rule\n      at node 'node_{i}'" in ran.err


def test_help_answers_fast_and_imports_no_framework():
    script = "import sys, onnxbridge; from onnxbridge.cli import group; print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    for name in ("torch", "tensorflow", "coremltools", "onnxruntime", "numpy", "onnx"):
        assert f"'{name}'" not in loaded
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "onnxbridge", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.3


def test_every_command_has_help(cli):
    from onnxbridge.cli import COMMANDS

    for name in COMMANDS:
        ran = cli(name, "--help")
        assert ran.code == 0 and ran.out.startswith("Usage: ")


def test_doctor_and_plugins(cli):
    assert "onnxruntime" in cli("doctor").out and "devices" in cli("doctor").out
    listed = json.loads(cli("plugins", "--json").out)
    assert {(p["kind"], p["name"]) for p in listed} >= {("frontend", "onnx"), ("backend", "coreml")}


def test_a_side_that_cannot_run_fails_the_verification_and_keeps_the_artifact(cli, network_file, tmp_path, monkeypatch):
    from onnxbridge.backends.onnx import OnnxBackend

    monkeypatch.setattr(OnnxBackend, "runner", lambda self, artifact, device: lambda feeds: 1 / 0)
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx")
    assert ran.code == 1 and "ONNX cannot run the model on" in ran.err and "ZeroDivisionError" in ran.err
    assert (tmp_path / "o.onnx.failed").exists()


def test_a_dtype_that_the_model_does_not_take_is_refused(cli, network_file):
    ran = cli("inspect", network_file, "--inputs", "x:int32[1,3,8,8]")
    assert ran.code == 2 and "is float32, not int32" in ran.err
