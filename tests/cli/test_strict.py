"""`--strict` and `--mutants`."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files


@pytest.fixture
def weak_file(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 8])
    w = op.constant(np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32), "w")
    y = op.Sigmoid(op.Mul(op.MatMul(x, w), np.float32(1e5)))
    onnx_files.write(op.model([x], [op.output(y, "y")]), tmp_path / "weak.onnx")
    return tmp_path / "weak.onnx"


def test_weak_is_exit_0_and_with_strict_1(cli, weak_file, tmp_path):
    ran = cli("convert", weak_file, "-o", tmp_path / "a.onnx")
    assert ran.code == 0 and ran.out.startswith("WEAK") and "weak: output y: it is saturated" in ran.out
    ran = cli("convert", weak_file, "-o", tmp_path / "b.onnx", "--strict")
    assert ran.code == 1 and "the verification is weak, which --strict" in ran.err
    assert not (tmp_path / "b.onnx").exists() and (tmp_path / "b.onnx.failed").exists()
    assert cli("verify", weak_file, weak_file).code == 0
    ran = cli("verify", weak_file, weak_file, "--strict")
    assert ran.code == 1 and ran.out.startswith("WEAK") and "the verification is weak" in ran.err


def test_strict_and_json(cli, weak_file, network_file):
    ran = cli("verify", weak_file, weak_file, "--strict", "--json")
    found = json.loads(ran.out)
    assert ran.code == found["exit_code"] == 1 and found["verdict"] == "WEAK" and found["error"]["type"] == "VerificationError"
    assert found["weak"] and found["sensitivity"]["planted"] > 0
    assert cli("verify", network_file, network_file, "--strict").code == 0


def test_mutants(cli, network_file):
    assert "would have caught 2 of 2 planted faults" in cli("verify", network_file, network_file, "--mutants", 2).out
    assert "planted" not in cli("verify", network_file, network_file, "--mutants", 0).out
    assert cli("verify", network_file, network_file, "--mutants", "-1").code == 2
