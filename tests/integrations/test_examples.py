"""The examples that people copy, run as they would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frontends.mxnet.build import operator, save, variable

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


def run(*command):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, env=os.environ | {"PATH": path}, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_photos_to_coreml(tmp_path):
    import coremltools

    out = run(sys.executable, EXAMPLES / "photos_to_coreml.py", tmp_path / "photos.mlpackage")
    assert out.startswith(("PASSED", "WEAK"))
    spec = coremltools.models.MLModel(str(tmp_path / "photos.mlpackage"), skip_model_load=True).get_spec()
    assert spec.description.input[0].type.WhichOneof("Type") == "imageType"
    assert spec.description.predictedFeatureName and spec.description.metadata.author == "us"


def test_keras_to_pytorch():
    out = run(sys.executable, EXAMPLES / "keras_to_pytorch.py")
    assert out.startswith("PASSED") and "after 40 steps in PyTorch" in out and "scores" in out


def test_mxnet_rescue(tmp_path):
    import numpy as np

    nodes = [variable("data"), variable("w"), variable("b")]
    nodes.append(operator("FullyConnected", "fc", [(0, 0), (1, 0), (2, 0)], {"num_hidden": 3}))
    nodes.append(operator("softmax", "out", [(3, 0)]))
    weights = {"arg:w": np.eye(3, 5, dtype=np.float32), "arg:b": np.ones(3, np.float32)}
    symbol, params = save(tmp_path, nodes, [(4, 0)], weights)
    out = run("bash", EXAMPLES / "mxnet_rescue.sh", symbol, params, "data:float32[N,5]", tmp_path / "out")
    assert out.count("PASSED") == 3 and {p.name for p in (tmp_path / "out").iterdir()} == {"net.onnx", "net.pt2"}


def test_every_example_is_listed():
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({p.name})" in page for p in EXAMPLES.iterdir() if p.name not in ("README.md", "__pycache__"))
