"""Fixtures: the small network of examples/digits, trained once per framework on scikit-learn's digits."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"


@dataclass(frozen=True)
class Trained:
    """A trained model: the source to convert, and the input specs that reading it requires."""

    source: Any
    inputs: Any = None


def run(*command: Any) -> None:
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """The file with the training and test split of the digits that the examples write."""
    path = tmp_path_factory.mktemp("digits") / "digits.npz"
    run(sys.executable, EXAMPLES / "data.py", path)
    return path


@pytest.fixture(scope="session")
def test_split(digits):
    with np.load(digits) as data:
        return data["x_test"], data["y_test"]


@pytest.fixture(scope="session")
def trained(digits, tmp_path_factory):
    """A function that returns the trained network of a framework, trained at the first call."""
    folder = tmp_path_factory.mktemp("trained")
    trained_models: dict[str, Trained] = {}

    def train(framework: str) -> Trained:
        if framework == "pytorch":
            run(sys.executable, EXAMPLES / "torch_net.py", digits, folder / "digits.pt2")
            return Trained(folder / "digits.pt2")
        if framework == "tensorflow":
            run(sys.executable, EXAMPLES / "keras_net.py", digits, folder / "digits.keras")
            return Trained(folder / "digits.keras")
        if framework == "mxnet":
            python = os.environ.get("ONNXBRIDGE_MXNET_PYTHON")
            assert python, "set ONNXBRIDGE_MXNET_PYTHON to a Python that has MXNet, or run `make test`, which builds one"
            run(python, EXAMPLES / "gluon_net.py", digits, folder / "digits")
            pair = (folder / "digits-symbol.json", folder / "digits-0000.params")
            return Trained(pair, "data:float32[N,1,8,8]")
        import onnxbridge

        path = folder / {"onnx": "digits.onnx", "coreml": "digits.mlpackage"}[framework]
        onnxbridge.convert(get("pytorch").source, framework, output=path)
        return Trained(path)

    def get(framework: str) -> Trained:
        if framework not in trained_models:
            trained_models[framework] = train(framework)
        return trained_models[framework]

    return get
