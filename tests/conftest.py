"""What many tests share: small ONNX models, and the command line called in this process."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge import frameworks
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from tests.floors import LACKING

# Starting a framework again for each command would take hours. tests/isolation is about what is isolated.
os.environ.setdefault("ONNXBRIDGE_ISOLATE", "never")
frameworks.load_triton_before_tensorflow()


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="one case of each test, without those marked slow (make quick)")


    parser.addoption("--floors", action="store_true", help="skip tests of what old frameworks lack (make test-floors)")


def pytest_collection_modifyitems(config, items):
    for item in items if config.getoption("--floors") else ():
        reason = LACKING.get(f"{item.path.relative_to(Path(__file__).parent).as_posix()}::{item.name.partition('[')[0]}")
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
    if not config.getoption("--quick"):
        return
    chosen, seen = [], Counter()
    for item in items:
        suite = item.parent.name.startswith("OnnxBackend")  # onnx's own cases
        key = (item.path, item.parent.name if suite else item.name.partition("[")[0])
        seen[key] += 1
        if item.get_closest_marker("slow") is None and (seen[key] % 40 == 1 if suite else seen[key] == 1):
            chosen.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys, monkeypatch):
    """Call `onnxbridge ARGS` and get its exit code, standard output and standard error."""

    def call(*args):
        from onnxbridge.cli import main

        monkeypatch.setattr(sys, "argv", ["onnxbridge", *map(str, args)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        return Ran(left.value.code or 0, captured.out, captured.err)

    return call


def small_network():
    """A convolution, a batch of activations and a linear layer, with a dynamic batch."""
    op = Builder()
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32) * 0.2
    x = op.input("x", ir.DataType.FLOAT, ["N", 3, 8, 8])
    h = op.Relu(op.Conv(x, op.constant(weight, "conv.weight"), pads=[1, 1, 1, 1]))
    h = op.Flatten(op.MaxPool(h, kernel_shape=[2, 2], strides=[2, 2]))
    y = op.Gemm(h, op.constant(rng.standard_normal((64, 5)).astype(np.float32) * 0.2, "fc.weight"))
    return op.model([x], [op.output(op.Softmax(y, axis=-1), "probabilities")])


@pytest.fixture
def network():
    return small_network()


@pytest.fixture
def network_file(tmp_path):
    path = tmp_path / "net.onnx"
    onnx_files.write(small_network(), path)
    return path
