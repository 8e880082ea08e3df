"""The same model gives the same bytes in every process and folder, and they hold no path of the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

SCRIPT = """
import os, onnxbridge
for name, to in {names!r}.items():
    onnxbridge.convert("net.onnx", to, output=name, verify=False)
"""
NAMES = {
    "a.onnx": "onnx", "a.pt2": "pytorch", "a.py": "pytorch", "a.keras": "tensorflow", "saved": "tensorflow",
    "a.tflite": "tensorflow", "a.pb": "tensorflow", "net": "mxnet", "a.mlpackage": "coreml",
}  # fmt: skip


@pytest.mark.slow
def test_artifacts_are_byte_identical(tmp_path):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[N,3,8,8] x) => (float[N,4] y) <float[4,3,3,3] w> '
        "{ c = Conv<pads = [1,1,1,1]>(x, w) r = Relu(c) p = GlobalAveragePool(r) y = Flatten(p) }"
    )
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    found = []
    for name, seed in (("one", "1"), ("two, with another name", "2")):
        folder = tmp_path / name
        folder.mkdir()
        onnx.save(model, folder / "net.onnx")
        script = SCRIPT.format(names=NAMES)
        subprocess.run([sys.executable, "-c", script], cwd=folder, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
        found.append({path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    first, second = found
    assert first.keys() == second.keys() and len(first) >= 14
    assert not [str(name) for name in first if first[name] != second[name]]
    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [path.encode() for path in (str(tmp_path), own, os.path.expanduser("~"), sys.prefix)]
    assert not [(str(name), path) for name, content in first.items() for path in paths if path in content]
