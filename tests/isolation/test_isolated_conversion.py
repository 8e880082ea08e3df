"""Reading a model in a process of its own changes nothing of the result, for every format."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge import isolation, plugins
from onnxbridge.errors import ConversionError, UnsafeFileError, UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.isolation.transfer import read_arrays, write_arrays


def torchscript(folder):
    import torch

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten())
    torch.jit.script(net.eval()).save(str(folder / "net.pt"))
    return folder / "net.pt", {"inputs": "input:float32[N,3,6,6]"}


def keras_file(folder):
    import keras

    net = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization()])
    net.save(folder / "net.keras")
    return folder / "net.keras", {}


def saved_model(folder):
    import tensorflow as tf

    class Net(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([None], tf.int64, name="ids")])
        def __call__(self, x, ids):
            return tf.math.segment_sum(x, ids)

    net = Net()
    tf.saved_model.save(net, str(folder / "net"), signatures=net.__call__)
    return folder / "net", {}


def tflite(folder):
    import tensorflow as tf

    path, _ = saved_model(folder)
    (folder / "net.tflite").write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(path)).convert())
    return folder / "net.tflite", {}


def coreml(folder):
    onnxbridge.convert(onnx_file(folder)[0], "coreml", output=folder / "net.mlpackage", verify=False)
    return folder / "net.mlpackage", {}


def onnx_file(folder):
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[N,3] x) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6}> '
    onnx.save(onnx.parser.parse_model(text + "{ h = MatMul(x, w) y = Softmax(h) }"), folder / "net.onnx")
    return folder / "net.onnx", {}


def mxnet(folder):
    onnxbridge.convert(onnx_file(folder)[0], "mxnet", output=folder / "net", verify=False)
    return (folder / "net-symbol.json", folder / "net-0000.params"), {"inputs": "x:float32[N,3]"}


SOURCES = [torchscript, keras_file, saved_model, tflite, coreml, onnx_file, mxnet]


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_results_are_byte_identical(tmp_path, source):
    path, options = source(tmp_path)
    made = [onnxbridge.convert(path, "onnx", isolate=isolate, **options) for isolate in (False, True)]
    assert made[0].report.verdict == made[1].report.verdict != "FAILED"
    assert [o.max_abs for o in made[0].report.outputs] == [o.max_abs for o in made[1].report.outputs]
    assert made[0].model.SerializeToString(deterministic=True) == made[1].model.SerializeToString(deterministic=True)


@pytest.mark.slow
def test_what_the_command_line_isolates_by_default(tmp_path):
    with isolation.isolating("auto"):
        for source in SOURCES:
            path, _ = source(tmp_path / source.__name__) if (tmp_path / source.__name__).mkdir() is None else (None, None)
            isolated = isolation.frontend_for(path) is not plugins.frontend_for(path)
            assert isolated == (source not in (onnx_file, mxnet)), source


def test_errors_are_those_of_the_frontend(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(onnx_file(tmp_path)[0].read_bytes()[:-9])
    with pytest.raises(UnsafeFileError, match="broken.onnx"):
        onnxbridge.load(tmp_path / "broken.onnx", isolate=True)
    with pytest.raises(UsageError, match="no input 'z'"):
        onnxbridge.load(tmp_path / "net.onnx", inputs="z:float32[1,3]", isolate=True)
    text = '<ir_version: 10, opset_import: ["" : 21, "odd" : 1]> g (float[3] x) => (float[3] y) { y = odd.Op(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "odd.onnx")
    with pytest.raises(ConversionError) as raised:
        onnxbridge.convert(tmp_path / "odd.onnx", "mxnet", isolate=True, verify=False)
    assert [p.op for p in raised.value.problems] == ["odd::Op"]


def test_what_the_process_logs_is_logged_here(tmp_path, monkeypatch, caplog):
    (tmp_path / "noting.py").write_text(
        "import logging, onnxbridge.frontends.onnx as f\nbefore = f.OnnxFrontend.to_hub\n"
        "def to_hub(self, *given):\n    logging.getLogger('onnxbridge').info('a\\nnote')\n    return before(self, *given)\n"
        "f.OnnxFrontend.to_hub = to_hub\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "imported", lambda: ["noting"])
    with caplog.at_level(logging.INFO, "onnxbridge"):
        onnxbridge.load(onnx_file(tmp_path)[0], isolate=True)
    assert "a\\nnote" in [record.getMessage() for record in caplog.records]


def test_weights_stay_after_the_process_has_ended(tmp_path):
    import gc

    big = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N,256] x) => (float[N,256] y) <float[256,256] w> { y = MatMul(x, w) }'
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(big, "w"))
    onnx.save(proto, tmp_path / "big.onnx")
    model = onnxbridge.load(tmp_path / "big.onnx", isolate=True)
    copy = model.clone()
    folder = Path(model.meta["onnxbridge.isolated"].folder)
    model.meta["onnxbridge.isolated"].close()
    del model
    gc.collect()
    assert not folder.exists()
    assert np.array_equal(onnx_files.to_proto(copy).graph.initializer[0].raw_data, big.tobytes())


def test_values_of_every_kind_are_exchanged(tmp_path):
    import ml_dtypes

    values = {
        "float32": np.ones((2, 3), np.float32), "scalar": np.float64(2.5), "bool": np.array([True, False]),
        "empty": np.zeros((0, 2), np.int8),
        "bfloat16": np.ones(3, ml_dtypes.bfloat16), "int4": np.ones(3, ml_dtypes.int4), "complex": np.ones(2, np.complex64),
        "strings": np.array([["a", ""], ["\u00e9", "x\0"]], object), "none": None, "list": [np.ones(2), [np.zeros(1)], None],
        "dict": {"a": np.ones(2), "b": np.zeros(1)}, "numbers": {1: np.ones(1)}, "big": np.zeros((300, 300)),
    }  # fmt: skip
    write_arrays(values, tmp_path / "values.onnx")
    found = read_arrays(tmp_path / "values.onnx")
    assert list(found) == list(values)
    for name in ("float32", "scalar", "bool", "empty", "bfloat16", "int4", "complex", "big"):
        assert found[name].dtype == np.asarray(values[name]).dtype and np.array_equal(found[name], values[name]), name
    assert found["strings"].tolist() == values["strings"].tolist()
    assert found["none"] is None and found["list"][2] is None and np.array_equal(found["list"][1][0], np.zeros(1))
    assert list(found["dict"]) == ["a", "b"] and np.array_equal(found["numbers"][1], np.ones(1))


CRASHING = """
import os, onnxbridge.frontends.pytorch as f
f.PytorchFrontend.to_hub = lambda self, *given, **options: os.abort()
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["convert", "check", "inspect", "verify", "diff"])
def test_commands_outlive_a_crash(cli, tmp_path, monkeypatch, command):
    monkeypatch.delenv("ONNXBRIDGE_ISOLATE")
    (tmp_path / "crashing.py").write_text(CRASHING)
    monkeypatch.chdir(tmp_path)
    path, options = torchscript(tmp_path)
    other = [path] if command in ("verify", "diff") else []
    ran = cli(command, path, *other, "--import", "crashing", "--inputs", options["inputs"])
    assert ran.code == 4 and "crashed (SIGABRT)" in ran.err and ran.err.count("\n") == 1, ran.err


@pytest.mark.parametrize("isolate", [True, False])
def test_a_job_is_isolated_by_default(tmp_path, monkeypatch, isolate):
    from onnxbridge.pipeline import run_job

    monkeypatch.delenv("ONNXBRIDGE_ISOLATE")
    used = []

    def frontend_for(*given):
        used.append(isolation._mode.get())
        return plugins.frontend_for(*given)

    monkeypatch.setattr(isolation, "frontend_for", frontend_for)
    job = {"source": str(onnx_file(tmp_path)[0]), "output": str(tmp_path / "out"), "limits": "tensor=1GiB"}
    assert run_job(job if isolate else {**job, "isolate": False})["status"] == "done"
    assert set(used) == {isolate}


def test_the_environment_changes_the_default(cli, tmp_path, monkeypatch):
    path, _ = onnx_file(tmp_path)
    monkeypatch.setenv("ONNXBRIDGE_ISOLATE", "sometimes")
    ran = cli("inspect", path)
    assert ran.code == 2 and "auto, always, never" in ran.err


@pytest.mark.parametrize(
    ("text", "error"),
    [("tensor=8GB,time=10m", ""), ("tensor=8", ""), ("size=3", "is not a limit"), ("tensor=", "not a number of bytes"),
     ("time=0", "not a number of seconds"), ("time=1e3", "not a number of seconds"), ("", "is not a limit")],
)  # fmt: skip
def test_limits_of_the_command_line(cli, tmp_path, text, error):
    ran = cli("inspect", onnx_file(tmp_path)[0], "--limits", text)
    assert (ran.code, error in ran.err) == (2 if error else 0, True)


def test_a_tensor_beyond_the_limit_names_the_option(cli, tmp_path):
    text = '<ir_version: 10, opset_import: ["" : 21]> g () => (float[a] y) <int64[1] n = {1073741824}> { y = ConstantOfShape(n) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "bomb.onnx")
    ran = cli("verify", tmp_path / "bomb.onnx", tmp_path / "bomb.onnx", "--limits", "tensor=1GiB")
    assert ran.code == 6 and "--limits tensor=SIZE" in ran.err, ran.err


def test_folding_takes_no_longer_than_its_limit():
    import time

    from onnxbridge.hub.io.limits import Limits, limiting
    from onnxbridge.hub.io.resource_limits import folding, folding_limited

    with limiting(Limits(folding_seconds=0.01)), folding_limited():
        with folding("A"):
            time.sleep(0.02)
        with pytest.raises(onnxbridge.LimitError, match="B: constant folding took more than the limit"), folding("B"):
            pass
