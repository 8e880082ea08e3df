"""The measuring scripts run, and count what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from onnxbridge.runtime.mxnet import python

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from worker import agrees, status_of  # noqa: E402


def measured(*arguments):
    command = [sys.executable, str(BENCHMARKS / "peers.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["pytorch", "tensorflow"])
def test_node_cases(target):
    text = measured("node_cases", f"onnxbridge-{target}", "--match", "test_abs")
    assert f"node_cases, onnxbridge-{target}: 1 of 1 right" in text


@pytest.mark.slow
def test_gluon_networks():
    text = measured("gluon_networks", "onnxbridge", "--match", "gru_2", "--python", python())
    assert "gluon_networks, onnxbridge: 1 of 1 right" in text and "nodes: " in text


def test_a_converter_that_is_not_there():
    text = measured("node_cases", "onnx2torch", "--match", "test_abs", "--list")
    assert "refused test_abs: ModuleNotFoundError: No module named 'onnx2torch'" in text and "0 of 1 right, 1 refused" in text


def test_outputs_are_compared():
    x = np.float32([1, np.nan, 1000])
    assert agrees(x, x) and agrees(x + np.float32([1e-4, 0, 0.1]), x) and not agrees(x + np.float32([0.2, 0, 0]), x)
    assert not agrees(x[None], x) and not agrees(np.int64([1]), np.float32([1])) and not agrees(np.int64([1]), np.int64([2]))


def test_what_a_conversion_became():
    class Case:
        inputs, expected = [], [np.float32([1])]

    def fails(inputs):
        raise ValueError("no")

    assert status_of(None, lambda case: lambda inputs: [np.float32([1])], Case)["status"] == "right"
    assert status_of(None, lambda case: lambda inputs: [np.float32([2])], Case)["status"] == "wrong"
    assert status_of(None, lambda case: lambda inputs: [], Case)["status"] == "wrong"
    assert status_of(None, lambda case: fails, Case)["status"] == "fails"
    assert status_of(None, fails, Case)["status"] == "refused"
