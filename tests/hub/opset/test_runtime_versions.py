"""Versions supported by runtimes, and the command that converts for them."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxbridge.errors import UsageError
from onnxbridge.hub.opset.runtime_versions import limits


def test_an_unlisted_release_has_the_limits_of_the_older_one():
    assert limits("onnxruntime==1.17").opset == 20 and limits("onnxruntime==1.17.3") == limits("onnxruntime-gpu == 1.17.1")
    assert limits("onnxruntime==1.7").opset == 13 and limits("onnxruntime==1.11").opset == 15
    assert limits("onnxruntime==1.99").opset >= 26


@pytest.mark.parametrize(
    "text", ["onnxruntime", "onnxruntime>=1.17", "tvm==1.0", *(f"onnxruntime=={v}" for v in ("0.0", "0.01", "99.0")), ""]
)
def test_an_unknown_release_is_a_usage_error(text):
    with pytest.raises(UsageError):
        limits(text)


def test_the_installed_runtime_loads_the_listed_versions():
    most = limits(f"onnxruntime=={onnxruntime.__version__}")
    model = onnx.parser.parse_model(
        f'<ir_version: {most.ir_version}, opset_import: ["" : {most.opset}]> g (float[2] x) => (float[2] y) {{ y = Relu(x) }}'
    )
    [y] = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": np.array([-1, 2], np.float32)})
    assert list(y) == [0, 2]


def test_the_command_converts_down_for_a_runtime_and_up_again(cli, network_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = cli("opset", network_file, "--for-runtime", "onnxruntime==1.6")
    assert ran.code == 0 and "wrote net.opset13.onnx" in ran.out
    old = onnx.load("net.opset13.onnx")
    assert old.opset_import[0].version == 13 and old.ir_version <= 7
    told = json.loads(cli("opset", "net.opset13.onnx", "--to", 22, "-o", "back.onnx", "--json").out)
    assert told["from"] == 13 and told["to"] == 22 and told["written"] == ["back.onnx"]
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
    files = (str(network_file), "net.opset13.onnx", "back.onnx")
    results = [onnxruntime.InferenceSession(f).run(None, {"x": x})[0] for f in files]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-6)
    assert cli("opset", network_file, "--to", 13).code == 2  # it is there already


def test_the_command_reports_every_node_and_writes_nothing(cli, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 18]> g (float[4] x, int64[1] i) => (float[m,n,k] y)
              { a = Unsqueeze(x, i)  b = Unsqueeze(a, i)  y = Relu(b) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    ran = cli("opset", tmp_path / "m.onnx", "--to", 9, "-o", tmp_path / "out.onnx")
    assert ran.code == 3 and "opset 18 to opset 9" in ran.err and "Unsqueeze x2" in ran.err
    assert not (tmp_path / "out.onnx").exists()
    assert cli("opset", tmp_path / "m.onnx").code == 2
    assert cli("opset", tmp_path / "m.onnx", "--to", 9, "--for-runtime", "onnxruntime==1.6").code == 2


def test_convert_for_a_runtime(cli, network_file, tmp_path):
    out = tmp_path / "out.onnx"
    assert cli("convert", network_file, "-o", out, "--for-runtime", "onnxruntime==1.3", "--no-verify").code == 0
    written = onnx.load(out)
    assert written.opset_import[0].version == 12 and written.ir_version <= 6
    assert cli("convert", network_file, "--to", "mxnet", "--for-runtime", "onnxruntime==1.3").code == 2


def test_inspect_reports_problems_of_lower_opsets(cli, tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 19]>
              g (float[n] x, int64[1] a) => (float[m,k] y) { y = Unsqueeze(x, a) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    found = json.loads(cli("inspect", tmp_path / "m.onnx", "--json").out)
    assert found["lowest_opset"] == 18
    assert found["below_it"] and all("opset 11: Unsqueeze" in line and "must be known" in line for line in found["below_it"])
