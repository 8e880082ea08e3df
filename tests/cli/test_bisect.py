"""`onnxbridge bisect`, and how `verify` and `convert` lead to it."""

from __future__ import annotations

import json

import onnx
import pytest

from tests.runtime.bisect.models import network, with_weight


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(network(), "good.onnx")
    onnx.save(with_weight(network(), "w2", lambda w: w * 1.1), "bad.onnx")


def test_the_divergence_is_printed_and_the_exit_code_is_1(cli, files, tmp_path):
    ran = cli("bisect", "good.onnx", "bad.onnx", "--save", "repro")
    assert ran.code == 1
    assert ran.out.startswith("first divergence: conv2 (Conv)") and "W (w2) is 1.1 times as large" in ran.out
    assert "wrote repro" in ran.err and (tmp_path / "repro" / "reproduce.py").exists()


def test_models_that_agree_exit_with_0(cli, files):
    ran = cli("bisect", "good.onnx", "good.onnx", "--save", "repro")
    assert ran.code == 0 and "nothing to find" in ran.out


def test_json(cli, files):
    ran = cli("bisect", "good.onnx", "bad.onnx", "--json")
    found = json.loads(ran.out)
    assert found["exit_code"] == 1 and found["first"]["name"] == "conv2" and found["paired"] == "by name"
    assert found["verification"]["verdict"] == "FAILED"


def test_nothing_is_overwritten(cli, files, tmp_path):
    (tmp_path / "repro").mkdir()
    ran = cli("bisect", "good.onnx", "bad.onnx", "--save", "repro")
    assert ran.code == 2 and "repro" in ran.err


def test_a_failed_verification_names_the_command(cli, files):
    ran = cli("verify", "good.onnx", "bad.onnx", "--seed", "3", "--atol", "1e-9")
    assert ran.code == 1
    assert "find where they diverge: onnxbridge bisect good.onnx bad.onnx --atol 1e-09 --seed 3" in ran.err


def test_a_failed_verification_finds_it_at_once(cli, files):
    ran = cli("verify", "good.onnx", "bad.onnx", "--bisect")
    assert ran.code == 1 and "first divergence: conv2 (Conv)" in ran.out
    found = json.loads(cli("verify", "good.onnx", "bad.onnx", "--bisect", "--json").out)
    assert found["bisection"]["first"]["name"] == "conv2"


def test_a_failed_conversion_names_the_command(cli, files):
    ran = cli("convert", "good.onnx", "--to", "pytorch", "--atol", "0", "--rtol", "0", "-o", "net.pt2")
    assert ran.code == 1
    assert "find where they diverge: onnxbridge bisect good.onnx net.pt2.failed --rtol 0.0 --atol 0.0" in ran.err
    ran = cli("bisect", "good.onnx", "net.pt2.failed", "--rtol", "0", "--atol", "0")
    assert ran.code == 1 and "the graphs of both compute the same in float64" in ran.out
