"""Models with gigabytes of weights, tried on small ones with the limits set to nothing: no copies of weights, and an estimate."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime import devices
from onnxbridge.runtime.executor import widening
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify import estimate, verification

RNG = np.random.default_rng(0)


def weight(name: str, *shape: int, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(RNG.standard_normal(shape).astype(dtype), name)


def conv_net() -> onnx.ModelProto:
    """Conv and BatchNormalization, which ONNX Runtime fuses into new weights, a branch that reads a weight, and Gemm."""
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["pooled", "shift"], [op])], name, [], [helper.make_tensor_value_info(op, 1, None)]
        )
        for name, op in (("then_branch", "Add"), ("else_branch", "Sub"))
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["b"]),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["pooled"]),
        helper.make_node("If", ["which"], ["chosen"], **branches),
        helper.make_node("Gemm", ["chosen", "matrix", "offset"], ["y"], transB=1),
    ]
    variance = numpy_helper.from_array(RNG.random(64).astype(np.float32) + 0.5, "var")
    weights = [
        weight("w", 64, 8, 3, 3), *(weight(n, 64) for n in ("scale", "bias", "mean")), variance, weight("shift", 1, 64),
        weight("matrix", 640, 64), weight("offset", 640),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", 1, ["N", 8, 8, 8]), helper.make_tensor_value_info("which", 9, [])]
    graph = helper.make_graph(nodes, "conv_net", inputs, [helper.make_tensor_value_info("y", 1, ["N", 640])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


FEEDS = {"x": RNG.standard_normal((2, 8, 8, 8)).astype(np.float32), "which": np.array(True)}


@pytest.fixture(params=["one file", "weights in a second file", "in memory"])
def model(request, tmp_path) -> ir.Model:
    """A model whose weights are mapped from files, or in memory."""
    if request.param == "in memory":
        return onnx_files.from_proto(conv_net())
    path = tmp_path / "net.onnx"
    onnx_files.write(onnx_files.from_proto(conv_net()), path, external=request.param == "weights in a second file")
    return onnx_files.read(path)


def test_a_session_without_copies_computes_the_same(model, monkeypatch):
    expected = devices.runner(model)(FEEDS)["y"]
    rounding = float(np.abs(expected - Executor(model, precision="float64").run(None, FEEDS)[0]).max())
    monkeypatch.setattr(devices, "BIG", 0)
    found = devices.runner(model)(FEEDS)["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * rounding)


def test_weights_in_files_are_not_handed_over_as_arrays(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx_files.write(onnx_files.from_proto(conv_net()), path, external=True)
    monkeypatch.setattr(devices, "BIG", 0)
    assert devices.session(path).weights == ()
    monkeypatch.setattr(devices, "BIG", 1 << 30)
    assert devices.session(path).weights


def test_weights_of_two_folders_are_found(tmp_path, monkeypatch):
    onnx_files.write(onnx_files.from_proto(conv_net()), tmp_path / "net.onnx", external=True)
    (tmp_path / "more").mkdir()
    onnx_files.write(onnx_files.from_proto(conv_net()), tmp_path / "more/net.onnx", external=True)
    model, other = onnx_files.read(tmp_path / "net.onnx"), onnx_files.read(tmp_path / "more/net.onnx")
    expected = devices.runner(model)(FEEDS)["y"]
    model.graph.initializers["matrix"].const_value = other.graph.initializers["matrix"].const_value
    assert onnx_files.folder_of_weights(model) == str(tmp_path.resolve())
    monkeypatch.setattr(devices, "BIG", 0)
    found = devices.runner(model)(FEEDS)["y"]
    assert found.shape == expected.shape
    same = [v.const_value.numpy() for v in (model.graph.initializers["w"], other.graph.initializers["w"])]
    assert not np.array_equal(*same)  # each file has other weights, so a wrong file would show
    matrix = other.graph.initializers["matrix"].const_value.numpy().astype(np.float64)
    own = onnx_files.read(tmp_path / "net.onnx").graph.initializers["matrix"].const_value.numpy().astype(np.float64)
    assert not np.allclose(found, expected)
    hidden = Executor(model, precision="float64").run(["chosen"], FEEDS)[0]
    scale = np.abs(hidden).max() * (np.abs(matrix - own).max())
    np.testing.assert_allclose(found - expected, hidden @ (matrix - own).T, atol=64 * 2**-23 * 64 * scale)


def test_float64_is_the_same_if_constants_are_widened_at_each_use(model, monkeypatch):
    expected = Executor(model, precision="float64").run(None, FEEDS)
    monkeypatch.setattr(widening, "MOST_WIDENED", 0)
    monkeypatch.setattr(widening, "_SMALL", 0)
    executor = Executor(model, precision="float64")
    assert {v.const_value for v in model.graph.initializers.values()} == widening.widened_at_use(model)
    for _ in range(2):
        found = executor.run(None, FEEDS)
        assert found[0].dtype == np.float64
        np.testing.assert_array_equal(found[0], expected[0])


def test_a_weight_that_is_an_output_is_float64_too(monkeypatch):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, [2])],
        [helper.make_tensor_value_info("y", 1, [2]), helper.make_tensor_value_info("w", 1, [3])], [weight("w", 3)],
    )  # fmt: skip
    monkeypatch.setattr(widening, "MOST_WIDENED", 0)
    monkeypatch.setattr(widening, "_SMALL", 0)
    found = Executor(helper.make_model(graph), precision="float64").run(None, {"x": np.ones(2, np.float32)})
    assert [a.dtype for a in found] == [np.float64] * 2


def test_small_models_are_not_estimated():
    assert estimate.estimate(onnx_files.from_proto(conv_net()), 3) is None


def test_an_estimate_grows_with_samples_and_weights(monkeypatch):
    monkeypatch.setattr(estimate, "LARGE_WEIGHTS", 0)
    monkeypatch.setattr(estimate, "_measure_speed", lambda: estimate._Speed(1e9, 1e9, 1e9, 1e9))
    model = onnx_files.from_proto(conv_net())
    one, three = estimate.estimate(model, 1), estimate.estimate(model, 3)
    assert one is not None and three is not None
    assert three.seconds == pytest.approx(3 * one.seconds) and three.memory == one.memory > 0


def test_a_model_that_multiplies_very_much_is_run_on_fewer_samples(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "LARGE_WEIGHTS", 0)
    model = onnx_files.from_proto(conv_net())
    usual, five = estimate.estimate(model, None), estimate.estimate(model, 5)
    assert usual is not None and usual.samples == 3 and five is not None and five.samples == 5
    monkeypatch.setattr(estimate, "HEAVY_MACS", 0)
    few = estimate.estimate(model, None)
    assert few is not None and few.samples < 3 and f"on {few.samples} sample" in str(few)
    path = tmp_path / "net.onnx"
    onnx_files.write(model, path)
    assert f": {few.samples} sample" in cli("verify", path, path).out
    assert ": 4 samples" in cli("verify", path, path, "--samples", 4).out


def test_a_long_verification_is_announced(cli, tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    onnx_files.write(onnx_files.from_proto(conv_net()), path)
    monkeypatch.setattr(estimate, "LARGE_WEIGHTS", 0)
    monkeypatch.setattr(verification, "ANNOUNCED", 0.0)
    for more, announced in (((), True), (("-q",), False)):
        result = cli("convert", str(path), "-o", str(tmp_path / f"out{len(more)}.onnx"), *more)
        assert result.code == 0
        assert ("the verification will take about" in result.err) is announced
