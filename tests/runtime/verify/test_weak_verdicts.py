"""Agreement that proves little is WEAK: for each reason a model, and one like it without the reason."""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import Executor
from onnxbridge.runtime.mutation.faults import faults_of
from onnxbridge.runtime.mutation.sensitivity import Sensitivity
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.strength.weaknesses import few_caught
from onnxbridge.runtime.verify.verification import verify_runners

FLOAT = ir.DataType.FLOAT


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(*builds, shape=("N", 8)):
    """A model with an output for each function: "y0", "y1", ..."""
    op = Builder()
    x = op.input("x", FLOAT, list(shape))
    return op.model([x], [op.output(build(op, x), f"y{i}") for i, build in enumerate(builds)])


def converted(*builds, **options):
    return onnxbridge.convert(onnx_files.to_proto(model_of(*builds)), **options).report


def linear(scale=0.3):
    return lambda op, x: op.MatMul(x, op.constant(draw(8, 8) * np.float32(scale), "w"))


def saturated(scale):
    return lambda op, x: op.Sigmoid(op.Mul(linear()(op, x), np.float32(scale)))


def distribution(scale):
    return lambda op, x: op.Softmax(op.Mul(linear()(op, x), np.float32(scale)))


def often_nan(limit):
    return lambda op, x: op.Sqrt(op.Sub(x, np.float32(limit)))


def branching(limit):
    def build(op, x):
        large = op.Greater(op.ReduceMax(x, keepdims=0), np.float32(limit))
        return op.If(large, then_branch=lambda: op.Mul(x, np.float32(2)), else_branch=lambda: op.Neg(x))

    return build


def hidden(scale):
    """A model whose layer hardly counts beside its input."""
    return lambda op, x: op.Add(x, op.Mul(op.Tanh(linear()(op, x)), np.full(8, scale, np.float32)))


def draws_numbers(op, x):
    return op.Add(linear()(op, x), op.RandomNormalLike(x))


CASES = {
    "saturated": (saturated(1e5), saturated(1.0), "output y0: it is saturated: nearly all of it is 0 or 1"),
    "a distribution of zeros and ones": (distribution(1e5), distribution(1.0), "output y0: it is saturated"),
    "many NaN": (often_nan(0.0), often_nan(-9.0), "of its elements are NaN"),
    "few planted faults are seen": (hidden(3e-6), hidden(1.0), "planted faults would have been caught"),
    "random": (draws_numbers, linear(), "output y0: it is random"),
}  # fmt: skip


@pytest.mark.parametrize(("weak", "strong", "reason"), CASES.values(), ids=CASES)
def test_one_output_that_shows_too_little_is_weak(weak, strong, reason):
    report = converted(weak, linear(), atol=None)
    assert report.agrees and report.verdict == "WEAK"
    assert any(reason in line for line in report.weaknesses), report.weaknesses
    assert f"  weak: {report.weaknesses[0]}" in str(report) and report.as_dict()["weak"] == list(report.weaknesses)
    assert converted(strong, linear()).passed


@pytest.mark.parametrize(("atol", "verdict"), [(0.1, "WEAK"), (1e-4, "PASSED")])
def test_a_wide_tolerance_is_weak(atol, verdict):
    report = converted(linear(), linear(1.0), atol={"y0": atol})
    assert report.verdict == verdict
    assert any("output y0: its tolerance is" in line for line in report.weaknesses) == (verdict == "WEAK")


def test_an_integer_output_has_no_tolerance():
    assert converted(lambda op, x: op.ArgMax(linear()(op, x), axis=1), linear()).passed


def test_a_branch_that_no_sample_ran_is_weak():
    report = converted(branching(1e30))
    assert report.verdict == "WEAK" and "branches of If that no sample ran: then of" in report.weaknesses[0]
    feeds = [{"x": np.full((2, 8), value, np.float32) * np.arange(8, dtype=np.float32)} for value in (1, -1)]
    model = model_of(branching(0.5))
    proto = onnx_files.to_proto(model)
    assert onnxbridge.verify(proto, proto, feeds).passed
    one_way = onnxbridge.verify(proto, proto, feeds[:1])
    assert one_way.verdict == "WEAK" and "else of" in str(one_way) and "then of" not in str(one_way)


def test_a_comparison_in_float32_decides_for_lower_precision():
    model = model_of(linear())
    executor = Executor(model)

    def run(feeds):
        return dict(zip(executor.output_names, executor.run(None, feeds), strict=True))

    coarse = Runner("low precision", run, unit=2.0**-6)
    alone = verify_runners(model, Runner("reference", run), coarse)
    assert alone.verdict == "WEAK" and any("planted faults" in line for line in alone.weaknesses)
    both = verify_runners(model, Runner("reference", run), Runner("low", run, 2.0**-6, finer=Runner("computed in float32", run)))
    assert both.passed and both.sensitivity.share == 1 and both.outputs[0].tolerance.atol > 0.01


def test_the_report_says_what_would_have_been_caught():
    report = converted(linear())
    assert report.sensitivity.planted == 3 and report.sensitivity.caught == 3
    assert "would have caught 3 of 3 planted faults; the smallest error of a weight that it sees is 0.0" in str(report)
    found = json.loads(json.dumps(report.as_dict()))["sensitivity"]
    assert found["caught"] == 3 and found["missed"] == [] and 0 < found["smallest_weight_error"] < 1e-3
    assert converted(linear(), mutants=0).sensitivity is None
    assert converted(linear(), mutants=1).sensitivity.planted == 1


def test_missed_faults_are_named():
    report = converted(hidden(3e-6))
    assert f"not caught: {report.sensitivity.missed[0]}" in str(report)
    assert {f.op for f in report.sensitivity.missed} <= {"MatMul", "Mul"}


def test_a_failed_verification_plants_nothing():
    model = model_of(linear())
    wrong = onnx_files.to_proto(model_of(linear(0.4)))
    report = onnxbridge.verify(onnx_files.to_proto(model), wrong)
    assert report.verdict == "FAILED" and report.sensitivity is None


def test_strict_raises(tmp_path):
    proto = onnx_files.to_proto(model_of(saturated(1e5)))
    with pytest.raises(VerificationError, match="the verification is weak, .*: .*output y0: it is saturated") as raised:
        onnxbridge.convert(proto, strict=True, output=tmp_path / "y.onnx")
    assert raised.value.report.verdict == "WEAK" and raised.value.conversion is not None
    assert (tmp_path / "y.onnx.failed").exists() and not (tmp_path / "y.onnx").exists()
    with pytest.raises(VerificationError, match="weak"):
        onnxbridge.verify(proto, proto, strict=True)
    with pytest.raises(VerificationError, match="do not compute the same"):
        onnxbridge.verify(proto, onnx_files.to_proto(model_of(linear())), strict=True)
    fine = onnx_files.to_proto(model_of(linear()))
    assert onnxbridge.convert(fine, strict=True).report.passed and onnxbridge.verify(fine, fine, strict=True).passed


@pytest.mark.parametrize(("caught", "planted", "weak"), [(0, 1, True), (5, 6, False), (40, 50, True), (44, 50, False)])
def test_few_caught_faults_are_weak(caught, planted, weak):
    missed = tuple(faults_of(model_of(linear()).graph)[:1] * (planted - caught))
    assert few_caught(None) == ""
    for not_caught, unreached in ((missed, ()), ((), missed)):
        reason = few_caught(Sensitivity(planted - len(unreached), not_caught, unreached, None, 0, planted))
        assert bool(reason) == weak and (f"{caught} of {planted}" in reason) == weak
        assert ("no sample reaches" in reason) == bool(weak and unreached)


@pytest.mark.parametrize("mutants", [-1, 1.5, True, "many"])
def test_wrong_numbers_of_faults(mutants):
    proto = onnx_files.to_proto(model_of(linear()))
    for call in (onnxbridge.convert, lambda proto, **given: onnxbridge.verify(proto, proto, **given)):
        with pytest.raises(UsageError, match="how many faults to plant"):
            call(proto, mutants=mutants)


def test_strict_needs_a_verification():
    with pytest.raises(UsageError, match="--no-verify"):
        onnxbridge.convert(onnx_files.to_proto(model_of(linear())), strict=True, verify=False)
