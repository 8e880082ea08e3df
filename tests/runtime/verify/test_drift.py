"""Drift: how far compression and lower precision move outputs, its default limits, and limits by the user."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.compression_drift import Drift
from onnxbridge.runtime.verify.metrics.metric import metrics_named
from onnxbridge.runtime.verify.rounding.simulate_precision import HALF
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners


def identity():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4, 8])
    return op.model([x], [op.output(op.Identity(x), "y")])


MODEL = identity()


def runner(title="executor", move=0.0):
    executor = Executor(MODEL)

    def run(feeds):
        (y,) = executor.run(None, feeds)
        y = np.array(y)
        y[0, 0] += move * np.float32(np.ptp(y))
        return {"y": y}

    return Runner(title, run)


def verified(candidate, **options):
    return verify_runners(MODEL, runner(), candidate, samples=1, **options)


@pytest.mark.parametrize(("move", "verdict"), [(0.01, "PASSED"), (0.05, "WEAK"), (0.2, "FAILED")])
def test_compression_is_judged_by_drift(move, verdict):
    report = verified(replace(runner(), stored=runner(move=move).run))
    assert report.verdict == verdict and report.outputs[0].drift == pytest.approx(move, rel=1e-3)
    assert f"compression moves it by {move:.2%} of its range (allowed 10.00%)" in str(report)
    if verdict == "WEAK":
        assert "compression moves y by 5.0% of its range, beyond 2%" in report.weaknesses[0]
        assert "--max-drift 5.5% (max_drift=) accepts it; --data measures it" in report.weaknesses[0]
    assert ("moves y by 20% of its range; --max-drift 0.22" in report.limit_exceeded) == (verdict == "FAILED")


def test_the_users_limit_takes_the_place_of_the_defaults():
    moved = replace(runner(), stored=runner(move=0.05).run)
    assert verified(moved, max_drift=0.06).verdict == "PASSED"
    assert verified(moved, max_drift=0.04).verdict == "FAILED"


def test_lower_precision_is_limited_too_however_wide_its_tolerance():
    half = replace(runner("half", move=0.05), unit=HALF)
    report = verified(half, atol=1e3, rtol=0.0)
    assert report.verdict == "WEAK" and "lower precision moves y by 5.0%" in report.weaknesses[0]
    assert verified(replace(runner("half", move=0.2), unit=HALF), atol=1e3, rtol=0.0).verdict == "FAILED"
    assert verified(replace(runner("half"), unit=HALF)).verdict == "PASSED"


def test_a_limit_for_lower_precision_does_not_widen_the_comparison_in_float32():
    wrong = replace(runner("half", move=0.005), unit=HALF, finer=runner("in float32", move=0.005))
    assert verified(wrong, max_drift=0.5).verdict == "FAILED"
    right = replace(runner("half", move=0.001), unit=HALF, finer=runner("in float32"))
    assert verified(right, max_drift=0.5, atol=1.0).agrees


def test_a_given_limit_compares_other_models_by_drift_alone():
    report = verified(runner("quantized", move=0.005), max_drift=0.01)
    assert report.verdict == "PASSED" and "any difference within the drift" in str(report)
    assert "the candidate moves it by 0.50% of its range (allowed 1.00%)" in str(report)
    assert verified(runner("quantized", move=0.05), max_drift=0.01).verdict == "FAILED"
    assert verified(runner("quantized", move=0.005)).verdict == "FAILED"
    assert verified(runner("quantized", move=np.nan), max_drift=0.01).verdict == "FAILED"


def test_a_float_model_and_its_quantized_copy(cli, tmp_path):
    weight = np.random.default_rng(0).standard_normal((16, 4)).astype(np.float32)
    step = np.float32(np.abs(weight).max() / 127)
    for name, values in (("float", weight), ("int8", np.round(weight / step) * step)):
        op = Builder()
        x = op.input("x", ir.DataType.FLOAT, ["N", 16])
        onnx_files.write(op.model([x], [op.output(op.MatMul(x, op.constant(values, "w")), "y")]), tmp_path / f"{name}.onnx")
    assert cli("verify", tmp_path / "float.onnx", tmp_path / "int8.onnx").code == 1
    ran = cli("verify", tmp_path / "float.onnx", tmp_path / "int8.onnx", "--max-drift", "1%")
    assert ran.code == 0 and ran.out.startswith("PASSED")
    ran = cli("verify", tmp_path / "float.onnx", tmp_path / "int8.onnx", "--max-drift", "0.001%")
    assert ran.code == 1 and "the candidate moves y by" in ran.err


def test_metrics_of_a_compressed_model_are_those_of_its_compressed_weights():
    report = verified(replace(runner(), stored=runner(move=0.05).run), metrics=metrics_named("max_abs"))
    assert report.outputs[0].max_abs == 0 and report.outputs[0].metrics["max_abs"] > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(("method", "verdicts"), [("linear8", {"PASSED"}), ("palettize2", {"FAILED"})])
def test_defaults_separate_eight_bits_from_two(method, verdicts):
    pytest.importorskip("coremltools")
    rng = np.random.default_rng(0)
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4, 64])
    h = op.Relu(op.MatMul(x, op.constant(rng.standard_normal((64, 128)).astype(np.float32) / 8, "a")))
    y = op.MatMul(h, op.constant(rng.standard_normal((128, 32)).astype(np.float32) / 11, "b"))
    proto = onnx_files.to_proto(op.model([x], [op.output(y, "y")]))
    try:
        report = onnxbridge.convert(proto, "coreml", compress=method).report
    except onnxbridge.VerificationError as e:
        report = e.report
    assert report.verdict in verdicts, str(report)


def test_the_drift_of_an_output_of_zeros_is_judged_by_its_tolerance():
    drift = Drift()
    drift.add({"y": np.zeros(3)}, {"y": np.array([0, 1e-6, 0])}, {})
    assert drift.shares() == {"y": np.inf} and drift.shares({"y"}) == {"y": 0}
