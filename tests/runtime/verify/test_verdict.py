"""The verdicts PASSED, WEAK and FAILED, and the time limit."""

from __future__ import annotations

import time

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import onnxbridge
from onnxbridge.errors import LimitError, VerificationError
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.mxnet.environment import VARIABLE
from onnxbridge.runtime.verify import time_limit


def model_of(build, shape=("N", 4)):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, list(shape))
    return op.model([x], [op.output(build(op, x), "y")])


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda op, x: op.Log(op.Sub(np.float32(-1), op.Mul(x, x))), "NaN or infinite throughout"),
        (lambda op, x: op.Mul(x, np.float32(0)), "constant (0.0)"),
        (lambda op, x: op.Greater(op.Mul(x, x), np.float32(-1)), "constant (True)"),
    ],
)
def test_constant_and_nan_outputs_are_weak(build, reason):
    report = onnxbridge.convert(onnx_files.to_proto(model_of(build))).report
    assert report.verdict == "WEAK" and not report.passed and report.agrees
    assert reason in report.weaknesses[0] and reason in str(report) and str(report).startswith("WEAK")


def test_one_output_that_varies_is_enough():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 4])
    y, z = op.output(op.Exp(x), "y"), op.output(op.Mul(x, np.float32(0)), "z")
    report = onnxbridge.convert(onnx_files.to_proto(op.model([x], [y, z]))).report
    assert report.passed and "agreement proves little" in str(report.outputs[1].notes)


def test_a_dynamic_size_that_was_never_varied_is_weak():
    proto = onnx_files.to_proto(model_of(lambda op, x: op.Exp(x)))
    assert onnxbridge.convert(proto).report.passed
    report = onnxbridge.convert(proto, samples=1).report
    assert report.verdict == "WEAK" and report.weaknesses == ("dynamic sizes were never varied: N=2",)
    assert onnxbridge.convert(proto, samples=1, dynamic="N=2..2").report.passed, "one that has a single size cannot be varied"
    given = onnxbridge.verify(proto, proto, {"x": np.ones((3, 4), np.float32) * np.arange(4, dtype=np.float32)})
    assert given.passed, "the sizes of the user's own inputs are the user's choice"


def test_mxnet_is_not_compared_with_itself(monkeypatch, tmp_path):
    made = onnxbridge.convert(onnx_files.to_proto(model_of(lambda op, x: op.Exp(x), (2, 4))), "mxnet", verify=False)
    pair = tuple(made.save(tmp_path / "net"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    report = onnxbridge.convert(pair, inputs="x:float32[2,4]").report
    assert report.verdict == "WEAK" and "not compared with MXNet" in str(report) and VARIABLE in str(report)


def convolutions():
    rng = np.random.default_rng(0)

    def build(op, x):
        for i in range(3):
            weight = op.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32), f"w{i}")
            x = op.Relu(op.Conv(x, weight, pads=[1, 1, 1, 1]))
        return x

    return onnx_files.to_proto(model_of(build, (1, 16, 8, 8)))


@pytest.mark.slow
def test_compression_that_moves_the_output_too_far_fails(tmp_path):
    pytest.importorskip("coremltools")
    with pytest.raises(VerificationError, match="compression moves y by .* of its range; --max-drift") as failed:
        onnxbridge.convert(convolutions(), "coreml", compress="palettize2", output=tmp_path / "net.mlpackage")
    report = failed.value.report
    assert report.verdict == "FAILED" and report.outputs[0].passed and report.outputs[0].drift > 0.1
    assert "FAIL y" in str(report) and (tmp_path / "net.mlpackage.failed").exists()
    allowed = onnxbridge.convert(convolutions(), "coreml", compress="palettize2", max_drift=2.0)
    assert allowed.report.passed and "compression moves it by" in str(allowed.report)
    assert onnxbridge.convert(convolutions(), "coreml", compress="linear8").report.passed


def endless():
    """A loop of 2^40 iterations."""
    f = TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Sin", ["s"], ["t"])], "body",
        [helper.make_tensor_value_info(n, k, []) for n, k in (("i", TensorProto.INT64), ("c", TensorProto.BOOL))]
        + [helper.make_tensor_value_info("s", f, [4])],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_tensor_value_info("t", f, [4])],
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    count = helper.make_tensor("n", TensorProto.INT64, [], [2**40])
    x, y = (helper.make_tensor_value_info(n, f, [4]) for n in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [count])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def ended():
    """Waits for abandoned work: while it runs, the command line leaves by `os._exit`."""
    yield
    deadline = time.monotonic() + 20
    while time_limit.still_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not time_limit.still_running()


@pytest.mark.usefixtures("ended")
def test_a_run_that_does_not_end_is_abandoned(tmp_path, monkeypatch):
    from onnxbridge.backends.onnx import OnnxBackend

    monkeypatch.setattr(OnnxBackend, "runner", lambda *given: lambda feeds: time.sleep(6))  # as in native code
    start = time.monotonic()
    with pytest.raises(LimitError, match=r"verification \(verifying 1/3\) did not finish within 1 seconds; --time-limit 2"):
        onnxbridge.convert(onnx_files.to_proto(model_of(lambda op, x: op.Exp(x))), output=tmp_path / "y.onnx", time_limit=1)
    assert time.monotonic() - start < 5 and (tmp_path / "y.onnx.failed").exists() and not (tmp_path / "y.onnx").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
def test_planted_faults_that_do_not_end_leave_the_verdict(tmp_path, monkeypatch):
    from onnxbridge.runtime.verify import verification

    monkeypatch.setattr(verification, "measured_sensitivity", lambda *given: time.sleep(6))
    model = onnx_files.to_proto(model_of(lambda op, x: op.Exp(x)))
    report = onnxbridge.convert(model, output=tmp_path / "y.onnx", time_limit=2).report
    assert report.verdict == "PASSED" and report.sensitivity is None and (tmp_path / "y.onnx").exists()
    assert "planting faults) did not finish within 2 seconds; --time-limit 4" in str(report.notes)


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
def test_an_endless_loop_reaches_a_limit():
    start = time.monotonic()
    with pytest.raises(LimitError):
        onnxbridge.convert(endless(), time_limit=2)
    assert time.monotonic() - start < 30


@pytest.mark.slow
@pytest.mark.usefixtures("ended")
def test_saving_a_module_that_does_not_end_is_abandoned(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from onnxbridge.backends.pytorch import export

    monkeypatch.setattr(export, "RUN_SECONDS", 2.0)
    start = time.monotonic()
    with pytest.raises(LimitError, match="running the converted module for export did not finish within 2 seconds"):
        onnxbridge.convert(endless(), "pytorch", output=tmp_path / "net.pt2", verify=False)
    assert time.monotonic() - start < 30 and not list(tmp_path.iterdir())
