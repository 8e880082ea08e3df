"""`--json` and `--report` on every exit code, names that would print lines of their own, and what is told before any work."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.api._arguments.early_checks import target_of
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.reports import dumps
from onnxbridge.runtime.mxnet.environment import VARIABLE


def both(cli, tmp_path, *args):
    """The exit code, and what --json prints and --report writes, which is the same."""
    report = tmp_path / "report.json"
    ran = cli(*args, "--json", "--report", report)
    found = json.loads(ran.out)
    assert json.loads(report.read_text()) == found and found["exit_code"] == ran.code
    return ran.code, found


def test_success(cli, network_file, tmp_path):
    code, found = both(cli, tmp_path, "convert", network_file, "-o", tmp_path / "o.onnx", "--seed", 3)
    digest = hashlib.sha256(network_file.read_bytes()).hexdigest()
    assert code == 0 and found["error"] is None and found["verdict"] == "PASSED" and found["command"] == "convert"
    size = network_file.stat().st_size
    assert found["source_files"] == [{"path": str(network_file), "bytes": size, "sha256": digest}]
    assert found["written_files"][0]["sha256"] == hashlib.sha256((tmp_path / "o.onnx").read_bytes()).hexdigest()
    assert found["options"]["seed"] == 3 and "--seed" in found["arguments"]
    assert found["versions"]["onnxruntime"] and found["versions"]["python"]
    assert {"reading", "writing", "verifying", "saving", "total"} <= set(found["seconds_by_stage"])
    (output,) = found["verification"]["outputs"]
    worst = output["worst"]
    assert len(worst["index"]) == 2 and abs(worst["reference"] - worst["candidate"]) <= output["max_abs"]


def test_a_difference_names_the_worst_element(cli, network, network_file, tmp_path):
    network.graph.initializers["fc.weight"].const_value.numpy()[0, 0] += 0.5
    onnx_files.write(network, tmp_path / "other.onnx")
    code, found = both(cli, tmp_path, "verify", network_file, tmp_path / "other.onnx")
    (output,) = found["outputs"]
    worst = output["worst"]
    assert code == 1 and found["verdict"] == "FAILED" and found["error"]["type"] == "VerificationError"
    assert abs(worst["reference"] - worst["candidate"]) == pytest.approx(output["max_abs"])
    assert len(found["source_files"]) == 2
    ran = cli("verify", network_file, tmp_path / "other.onnx")
    assert f"worst: sample {worst['sample'] + 1}, element {worst['index']}" in ran.out


def unknown_operator(tmp_path):
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Foo", ["x"], ["y"], domain="acme")], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)], ir_version=8,
    )  # fmt: skip
    (tmp_path / "unknown.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "unknown.onnx"


def bomb(tmp_path):
    size = numpy_helper.from_array(np.array([2**36]), "s")
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("ConstantOfShape", ["s"], ["y"])], "g", [], [value], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "bomb.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "bomb.onnx"


def test_every_failure(cli, network_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "pickle.onnx").write_bytes(b"\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}.")
    cases = [
        (2, ["convert", network_file, "--no-such-option"], "NoSuchOption"),
        (2, ["convert", "nowhere.onnx"], "UsageError"),
        (2, ["convert", network_file, "-o", "no/o.onnx"], "UsageError"),
        (3, ["convert", unknown_operator(tmp_path), "--to", "pytorch"], "ConversionError"),
        (4, ["convert", "pickle.onnx"], "UnsafeFileError"),
        (5, ["convert", network_file, "--to", "mxnet"], "MissingFrameworkError"),
        (6, ["convert", bomb(tmp_path)], "LimitError"),
    ]
    for code, arguments, kind in cases:
        (tmp_path / "report.json").unlink(missing_ok=True)
        ended, found = both(cli, tmp_path, *arguments)
        assert (ended, found["error"]["type"]) == (code, kind) and found["error"]["message"]
    (tmp_path / "report.json").unlink()
    _, found = both(cli, tmp_path, "convert", unknown_operator(tmp_path), "--to", "pytorch")
    assert found["error"]["problems"][0]["op"] == "acme::Foo"
    for command in (["inspect", "nowhere.onnx"], ["check", "nowhere.onnx"], ["opset", str(network_file), "--to", "99"]):
        ran = cli(*command, "--json")
        assert ran.code == 2 and json.loads(ran.out)["error"]["message"]


def test_the_default_output_is_never_the_source(cli, network_file, monkeypatch):
    monkeypatch.chdir(network_file.parent)
    assert "wrote net.converted.onnx" in cli("convert", "net.onnx").out


def test_infinities_are_kept():
    text = dumps({"a": [float("inf"), -float("inf"), float("nan"), 1.5]})
    assert json.loads(text) == {"a": ["Infinity", "-Infinity", "NaN", 1.5]}
    assert [float(v) for v in json.loads(text)["a"][:2]] == [float("inf"), -float("inf")]


EVIL = "x\nPASSED  everything\x1b[2J"


def evil_model(path):
    op = Builder()
    x = op.input(EVIL, ir.DataType.FLOAT, ["N", 4])
    y = op.output(op.Exp(x), f"{EVIL} out")
    model = op.model([x], [y])
    model.metadata_props["author"] = EVIL
    for node in model.graph:
        node.name = EVIL
    onnx_files.write(model, path)


@pytest.mark.parametrize(
    "command", [["convert"], ["inspect"], ["check", "--to", "coreml"], ["verify"], ["opset", "--to", "13"]]
)  # fmt: skip
def test_a_name_prints_no_line_of_its_own(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    evil_model(tmp_path / "evil.onnx")
    name, *rest = command
    files = ["evil.onnx"] * (2 if name == "verify" else 1)
    ran = cli(name, *files, *rest)
    lines = (ran.out + ran.err).splitlines()
    assert not any(line.startswith("PASSED  everything") for line in lines) and "\x1b" not in ran.out + ran.err
    if name in ("convert", "verify"):
        assert lines[0].startswith("PASSED  ONNX against ONNX")
    ran = cli(name, *files, *rest, "--inputs", "z:float32[1]") if name != "opset" else cli("convert", "evil.onnx", "--to", "mx")
    assert not any(line.startswith("PASSED  everything") for line in (ran.out + ran.err).splitlines())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-o", "{tmp}/net.ckpt"], "SavedModel"),
        (["-o", "{tmp}/net.hdf5"], "written as .keras or .h5"),
        (["-o", "{tmp}/net.keras", "--quantize", "float16"], "name the output *.tflite"),
        (["-o", "{tmp}/net.tflite", "--quantize", "int8"], "requires calibration"),
        (["--to", "tensorflow", "-o", "{tmp}/net", "--layout", "nhcw"], "neither nhwc nor nchw"),
        (["--to", "pytorch", "-o", "{tmp}/x.onnx"], "is a name for --to onnx; for --to pytorch name it *.pt2 or *.py"),
        (["--to", "onnx", "-o", "{tmp}/x.mlpackage"], "is a name for --to coreml"),
        (["--to", "tensorflow", "-o", "{tmp}/x.onnx"], "for --to tensorflow name it *.keras or *.h5"),
        (["--to", "tflite"], "name the output *.tflite"),
        (["--target", "onnx"], "--to"),
        (["--input-shape", "1"], "--inputs"),
        (["--rtol", "foo=1e-3", "-o", "{tmp}/o.onnx"], "the model has no output 'foo'; it has probabilities"),
        (["--atol", "foo=1e-3", "-o", "{tmp}/o.onnx"], "the model has no output 'foo'"),
        (["--dynamic", "M=1..4", "-o", "{tmp}/o.onnx"], "the model has no dynamic size 'M'; its dynamic sizes are N"),
        (["--inputs", "z:float32[1]", "-o", "{tmp}/o.onnx"], "the model has no input 'z'"),
        (["--for-runtime", "onnxruntime==0.0", "-o", "{tmp}/o.onnx"], "oldest release known"),
        (["--for-runtime", "onnxruntime==0.01", "-o", "{tmp}/o.onnx"], "not a known runtime"),
        (["--for-runtime", "onnxruntime==11.7", "-o", "{tmp}/o.onnx"], "the newest release known is 1.31"),
        (["--for-runtime", "caffe==1.1", "-o", "{tmp}/o.onnx"], "not a known runtime"),
        (["--opset", "40", "-o", "{tmp}/o.onnx"], "opset 40 does not exist (1 to"),
        (["--max-drift", "much", "-o", "{tmp}/o.onnx"], "write it as 10% or 0.1"),
    ],
)
def test_what_is_wrong_is_told_before_any_work(cli, network_file, tmp_path, args, message):
    start = time.monotonic()
    ran = cli("convert", network_file, *[a.format(tmp=tmp_path) for a in args])
    assert ran.code == 2 and message in ran.err and ran.out == ""
    assert time.monotonic() - start < 2 and sorted(p.name for p in tmp_path.iterdir()) == ["net.onnx"]


def test_several_things_that_are_wrong_are_told_at_once(cli, network_file, tmp_path):
    ran = cli("convert", network_file, "-o", tmp_path / "no" / "o.onnx", "--opset", 40, "--device", "abacus")
    assert ran.code == 2 and "there is no folder" in ran.err and "opset 40" in ran.err and len(ran.err.splitlines()) == 1


def test_a_missing_framework_is_told_before_the_source_is_read(tmp_path):
    """A source of 200 MB would take its time; the framework is not there."""
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 7000])
    weight = op.constant(np.zeros((7000, 7000), np.float32), "w")
    onnx_files.write(op.model([x], [op.output(op.MatMul(x, weight), "y")]), tmp_path / "net.onnx")
    script = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "sys.argv = ['onnxbridge', 'convert', 'net.onnx', '--to', 'torch']\n"
        "from onnxbridge.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 5 and ran.stderr == "error: torch is not installed: pip install torch safetensors\n"


def test_verify_looks_for_both_models_before_it_reads_one(cli, network_file, monkeypatch):
    monkeypatch.setattr(onnx_files, "read", lambda *given, **options: pytest.fail("read"))
    ran = cli("verify", network_file, "nowhere.onnx")
    assert ran.code == 2 and "nowhere.onnx: no such file" in ran.err


def test_the_suffix_names_the_target(cli, network_file, tmp_path):
    pytest.importorskip("coremltools")
    ran = cli("convert", network_file, "-o", tmp_path / "net.mlpackage", "--dynamic", "N=1..4")
    assert ran.code == 0 and (tmp_path / "net.mlpackage" / "Manifest.json").exists()
    assert onnxbridge.convert(network_file, output=tmp_path / "net.pt2", verify=False).target == "pytorch"


@pytest.mark.parametrize(
    ("suffix", "target"),
    [
        (".onnx", "onnx"), (".keras", "tensorflow"), (".h5", "tensorflow"), (".tflite", "tensorflow"), (".pb", "tensorflow"),
        (".pt2", "pytorch"), (".py", "pytorch"), (".mlpackage", "coreml"), (".mlmodel", "coreml"), ("", "onnx"), ("-1.5", "onnx"),
    ],
)  # fmt: skip
def test_every_suffix_has_its_target(suffix, target):
    assert target_of(None, f"folder.d/net{suffix}") == target


@pytest.mark.parametrize("options", [(), ("--to", "onnx"), ("--to", "keras"), ("--to", "coreml")])
def test_unknown_suffixes_are_refused_before_any_work(cli, network_file, tmp_path, monkeypatch, options):
    monkeypatch.setattr(onnx_files, "read", lambda *given, **options: pytest.fail("read"))
    ran = cli("convert", network_file, "-o", tmp_path / "net.xyz", *options)
    assert ran.code == 2 and "'net.xyz' cannot be written: name it *." in ran.err
    assert not (tmp_path / "net.xyz").exists()


@pytest.mark.parametrize(("name", "target"), [("torch", "pytorch"), ("keras", "tensorflow"), ("ONNX", "onnx")])
def test_other_names_of_targets(cli, network_file, name, target):
    assert onnxbridge.plugins.backend_name(name) == target
    assert cli("check", network_file, "--to", name).code == 0


def test_a_conversion_s_repr_is_short(network_file):
    text = repr(onnxbridge.convert(network_file))
    assert len(text.splitlines()) <= 3 and len(text) < 300 and "onnx to onnx" in text and "PASSED" in text


def test_inspect_tells_the_file_s_own_opset(cli, network, tmp_path):
    onnx_files.write(onnxbridge.opset.convert(network, to=13), tmp_path / "old.onnx")
    assert "opset   13 in the file; 18 is the lowest" in cli("inspect", tmp_path / "old.onnx").out
    assert json.loads(cli("inspect", tmp_path / "old.onnx", "--json").out)["opset"] == 13
