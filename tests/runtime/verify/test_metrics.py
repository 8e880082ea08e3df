"""Metrics beside the tolerance: what each measures, how NaN and shapes count, and limits that fail a verification."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest

import onnxbridge
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.runtime.verify.metrics.metric import METRICS, Measurements, measured, metrics_named
from onnxbridge.runtime.verify.runner import Runner
from onnxbridge.runtime.verify.verification import verify_runners

R = np.array([[1.0, 2.0, 4.0], [0.5, -8.0, 1e-6]], np.float32)
WORST = {"cosine": -1.0, "snr": -math.inf, "top1": 0.0}


def value(name, reference, candidate):
    (metric,) = metrics_named(name)
    return measured(metric, reference, candidate)


def test_each_metric_of_a_known_error():
    candidate = R + np.array([[0, 0, 1], [0, 0, 0]], np.float32)
    assert value("max_abs", R, candidate) == 1 and value("max_rel", R, candidate) == 0.25
    assert value("p50", R, candidate) == 0 and value("p99", R, candidate) == 1
    assert value("snr", R, candidate) == pytest.approx(10 * math.log10(np.sum(R.astype(float) ** 2)))
    expected = np.vdot(R, candidate) / np.linalg.norm(R) / np.linalg.norm(candidate)
    assert value("cosine", R, candidate) == pytest.approx(float(expected), rel=1e-6)
    assert value("top1", R, candidate) == 1 and value("top1", R, R[:, ::-1]) == 0 and value("top5", R, R[:, ::-1]) == 1
    assert value("top1", R, np.array([[4, 2, 1], [2, 1, 1]])) == 0.5


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_ulps_count_representable_numbers(dtype):
    one = np.ones(2, dtype)
    tiny = np.asarray(ml_dtypes.finfo(dtype).smallest_subnormal, dtype)
    assert value("ulp", one, one * dtype(1 + ml_dtypes.finfo(dtype).eps)) == 1
    assert value("ulp", one * tiny, -one * tiny) == 2 and value("ulp", one * 0, -one * 0) == 0
    assert value("ulp", np.asarray(1, dtype), np.asarray(1, dtype)) == 0
    largest = np.array([ml_dtypes.finfo(dtype).max], dtype)
    assert value("ulp", largest, -largest) > 2 * value("ulp", largest, one[:1])
    assert value("ulp", np.array([3, 4]), np.array([3, 1])) == 3


@pytest.mark.parametrize("name", METRICS)
def test_equal_outputs_have_no_error_whatever_they_hold(name):
    best = {"cosine": 1, "snr": math.inf, "top1": 1, "top5": 1}.get(name, 0)
    outputs = R, np.zeros_like(R), R * np.inf, np.full((2, 3), np.nan), R.astype(int), R > 0, R + 1j, R.astype(ml_dtypes.bfloat16)
    for same in outputs:
        assert value(name, same, same.copy()) == pytest.approx(best), same


@pytest.mark.parametrize("name", ["max_abs", "max_rel", "ulp", "p99.9", "cosine", "snr", "top1"])
def test_nan_or_infinity_in_one_and_other_shapes_are_the_worst(name):
    for wrong in (np.nan, np.inf):
        candidate = R.copy()
        candidate[0, 0] = wrong
        if (name, wrong) != ("top1", np.inf):  # which only becomes the largest of its row
            assert value(name, R, candidate) == WORST.get(name, math.inf)
        if wrong == np.inf and name != "top1":
            assert value(name, candidate, R) == WORST.get(name, math.inf)
    assert value(name, R, R[:1]) == (-math.inf if name in WORST else math.inf)
    assert value(name, R, np.array([["a"] * 3] * 2)) == (-math.inf if name in WORST else math.inf)
    assert value(name, np.zeros((0, 3)), np.zeros((0, 3))) is None and value(name, np.array(["a"]), np.array(["a"])) is None


def test_a_reference_of_zeros():
    zero = np.zeros_like(R)
    assert value("max_rel", zero, R) == math.inf and value("snr", zero, R) == -math.inf and value("cosine", zero, R) == 0


def test_large_magnitudes_do_not_overflow():
    assert value("cosine", R.astype(float) * 1e200, R.astype(float) * 1e-200) == pytest.approx(1)


def test_ties_and_rows_of_one_element():
    assert value("top1", np.array([[1.0, 1.0]]), np.array([[0.0, 0.0]])) == 1
    assert value("top1", np.ones((3, 1)), np.ones((3, 1))) is None and value("top1", np.float32(1), np.float32(1)) is None


def test_samples_are_combined_by_the_worst_and_rows_by_the_mean():
    found = Measurements(metrics_named(["max_abs", "snr", "top1"]))
    found.add("y", np.eye(3), np.eye(3))
    found.add("y", np.eye(3)[:1], np.eye(3)[1:2])
    assert found.of("y") == {"max_abs": 1, "snr": pytest.approx(-10 * math.log10(2)), "top1": 0.75}
    assert found.of("other") == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("cos", "there is no metric 'cos'; there are max_abs, .*cosine.*, top5, p50 to p99.9"),
        ("cosine<=0.9", "cosine is better when it is higher; write cosine>=0.9"),
        ("p99>=1", "p99 is better when it is lower; write p99<=1"),
        ("cosine>=high", "'high' is not a number"),
        (["snr", "snr>=30"], "'snr' is given twice"),
        ("no_module:f", "there is no module 'no_module'"),
        ("math:nothing", "math has no 'nothing'"),
        ("math:pi", "math:pi is a float, which is not callable"),
    ],
)
def test_wrong_metrics_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        metrics_named(given)


def test_limits():
    (share, own) = metrics_named(["top1 >= 99%", "math:dist<=2"])
    assert share.limit == 0.99 and share.keeps(0.995) and not share.keeps(0.98) and not share.keeps(math.nan)
    assert own.keeps(1.5) and not own.keeps(2.5)


def test_a_limit_fails_a_verification_that_the_tolerance_passes(cli, network_file, network, tmp_path):
    ran = cli("verify", network_file, network_file, "--metric", "cosine>=0.999", "--metric", "snr", "--json")
    found = json.loads(ran.out)
    assert ran.code == 0 and found["outputs"][0]["metrics"]["cosine"] == pytest.approx(1) and found["limits"] == {"cosine": 0.999}
    exact = Runner("zeros", lambda feeds: {"probabilities": np.full((len(feeds["x"]), 5), 0.2, np.float32)})
    near = Runner("near", lambda feeds: {"probabilities": np.full((len(feeds["x"]), 5), 0.20001, np.float32)})
    report = verify_runners(network, exact, near, atol=1.0, rtol=0.0, metrics=metrics_named("snr>=100"))
    assert report.verdict == "FAILED" and report.outputs[0].passed
    assert "snr 86.02" in str(report) and "(at least 100) FAIL" in str(report)
    assert report.beyond_limits and report.as_dict()["beyond_limits"] == list(report.beyond_limits)
    ran = cli("convert", network_file, "-o", tmp_path / "o.onnx", "--metric", "snr>=1e9", "--metric", "ulp<=-1")
    assert ran.code == 1 and "a limit is exceeded" in ran.err and (tmp_path / "o.onnx.failed").exists()


def test_the_users_own_metric_gets_the_outputs(network_file):
    def rows(reference, candidate):
        assert reference.dtype == candidate.dtype == np.float32
        return len(reference)

    report = onnxbridge.verify(network_file, network_file, metrics=[rows])
    assert report.outputs[0].metrics == {"rows": 3}

    def fails(reference, candidate):
        return 1 / 0

    with pytest.raises(VerificationError, match="the metric fails fails with ZeroDivisionError"):
        onnxbridge.verify(network_file, network_file, metrics=fails)
