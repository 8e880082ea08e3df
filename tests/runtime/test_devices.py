"""ONNX Runtime sessions: execution providers by device, weights in memory, and the fallback to the executor."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxbridge
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.runtime import devices

CPU = "CPUExecutionProvider"
ALL = {
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "directml": "DmlExecutionProvider",
}


@pytest.fixture
def available(monkeypatch):
    """A function that sets the available execution providers."""

    def build(*names: str) -> None:
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [*(ALL[d] for d in names), CPU])

    return build


@pytest.mark.parametrize("device", ALL)
def test_named_device_selects_its_provider_then_the_cpu(available, device):
    available(*ALL)
    assert devices.providers(device) == [ALL[device], CPU]
    assert set(devices.devices()) == {*ALL, "cpu"}
    available()
    with pytest.raises(UsageError, match=f"no execution provider for '{device}', only for cpu"):
        devices.providers(device)


@pytest.mark.parametrize(
    ("built", "chosen"),
    [
        ((), []), (("cuda", "tensorrt"), ["cuda"]), (("rocm",), ["rocm"]), (("directml",), ["directml"]),
        (("coreml",), []), (("openvino",), []), (("tensorrt",), []), (("directml", "cuda"), ["cuda"]),
    ],
)  # fmt: skip
def test_auto_selects_the_fastest_float32_provider(available, built, chosen):
    available(*built)
    assert devices.providers("auto") == [*(ALL[d] for d in chosen), CPU]
    assert devices.providers("cpu") == [CPU]


def test_unknown_device_raises():
    with pytest.raises(UsageError, match="unknown device 'abacus'"):
        devices.providers("abacus")


class FakeSession:
    """A session that records its arguments; `works` are the providers that start."""

    works: tuple[str, ...] = (CPU,)

    def __init__(self, message, options, *, providers, provider_options, disabled_optimizers):
        self.arguments = providers, provider_options

    def get_providers(self):
        return [p for p in self.arguments[0] if p in self.works]


@pytest.mark.parametrize("device", ALL)
def test_provider_that_fails_to_start_raises(available, model, monkeypatch, device):
    """ONNX Runtime itself falls back to the CPU silently."""
    available(*ALL)
    monkeypatch.setattr(devices, "Session", FakeSession)
    with pytest.raises(UsageError, match=f"failed to start, so device '{device}' is not available"):
        devices.session(model(), device)
    assert devices.session(model(), "auto").get_providers() == [CPU]
    monkeypatch.setattr(FakeSession, "works", (ALL[device], CPU))
    started = devices.session(model(), device, provider_options={"device_id": 1})
    assert started.arguments == ([ALL[device], CPU], [{"device_id": "1"}, {}])


def test_cpu_accepts_provider_options(model):
    assert devices.session(model(), "cpu", provider_options={}).get_providers() == [CPU]


@pytest.fixture
def model():
    def build(kind=np.float32) -> onnx.ModelProto:
        w = np.arange(120 * 300).reshape(120, 300).astype(kind)
        weights = numpy_helper.from_array(w, "w")
        nodes = [helper.make_node("Cast", ["w"], ["v"], to=1), helper.make_node("MatMul", ["x", "v"], ["y"])]
        value = helper.make_tensor_value_info
        graph = helper.make_graph(nodes, "g", [value("x", 1, [None, 120])], [value("y", 1, [None, 300])], [weights])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    return build


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int8, ml_dtypes.bfloat16])
def test_every_kind_of_source_gives_the_same_results(model, tmp_path, kind):
    proto = model(kind)
    onnx.save(proto, tmp_path / "m.onnx")
    onnx.save(model(kind), tmp_path / "e.onnx", save_as_external_data=True, location="e.data", size_threshold=0)
    x = np.linspace(-1, 1, 240).reshape(2, 120).astype(np.float32)
    w = numpy_helper.to_array(proto.graph.initializer[0]).astype(np.float64)
    expected, bound = x @ w, 120 * 2.0**-24 * (np.abs(x) @ np.abs(w))  # unit roundoff x terms of the sum
    for source in (proto, proto.SerializeToString(), ir.from_proto(proto), tmp_path / "m.onnx", str(tmp_path / "e.onnx")):
        started = devices.session(source, "cpu", threads=1)
        assert (np.abs(devices.run(started, {"x": x, "unused": x})["y"] - expected) <= bound).all()


def test_large_weights_are_not_copied_and_outlive_the_model(model):
    hub = ir.from_proto(model())
    weights = hub.graph.initializers["w"].const_value.numpy()
    hub.graph.initializers["w"].const_value = ir.tensor(weights, name="w")
    started = devices.session(hub, "cpu")
    assert [np.shares_memory(a, weights) for a in started.weights] == [True]
    del hub, weights
    x = np.ones((1, 120), np.float32)
    assert devices.run(started, {"x": x})["y"][0, 0] == pytest.approx(sum(range(0, 120 * 300, 300)))


def test_large_weights_that_no_node_reads_are_left_out(model):
    hub = ir.from_proto(model())
    unread = ir.tensor(np.zeros((300, 300), np.float32), name="unread")
    hub.graph.register_initializer(
        ir.Value(name="unread", shape=unread.shape, type=ir.TensorType(unread.dtype), const_value=unread)
    )
    started = devices.session(hub, "cpu")
    assert devices.run(started, {"x": np.zeros((1, 120), np.float32)})["y"].shape == (1, 300)


def test_external_data_outside_of_the_folder_is_rejected(model, tmp_path):
    proto = model()
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.data").write_bytes(bytes(4 * 120 * 300))
    onnx.save(proto, tmp_path / "inside" / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    reaching = onnx.load(tmp_path / "inside" / "m.onnx", load_external_data=False)
    reaching.graph.initializer[0].external_data[0].value = "../secret.data"
    (tmp_path / "inside" / "m.onnx").write_bytes(reaching.SerializeToString())
    with pytest.raises(UnsafeFileError):
        devices.session(tmp_path / "inside" / "m.onnx")


def test_pad_fusion_is_disabled():
    """It fuses a Pad of zeros into a MaxPool, which pads with minus infinity."""
    value = helper.make_tensor_value_info
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "p")
    nodes = [helper.make_node("Pad", ["x", "p"], ["h"]), helper.make_node("MaxPool", ["h"], ["y"], kernel_shape=[3, 3])]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [1, 1, 3, 3])], [value("y", 1, [1, 1, 3, 3])], [pads])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = -np.ones((1, 1, 3, 3), np.float32)
    y = devices.run(devices.session(proto, "cpu"), {"x": x})["y"]
    assert y[0, 0].tolist() == [[0, 0, 0], [0, -1, 0], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["proto", "ir"])
def test_mat_mul_scale_fusion_is_disabled_for_float64(kind):
    """It stores the scale 1/3 in float32."""
    value = helper.make_tensor_value_info
    divisor = numpy_helper.from_array(np.array(3.0), "three")
    nodes = [helper.make_node("Div", ["x", "three"], ["h"]), helper.make_node("MatMul", ["h", "h"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", 11, [2, 2])], [value("y", 11, [2, 2])], [divisor])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    y = devices.run(devices.session(proto if kind == "proto" else ir.serde.deserialize_model(proto), "cpu"), {"x": x})["y"]
    np.testing.assert_allclose(y, (x / 3) @ (x / 3), 1e-14)


def test_models_that_depend_on_the_number_of_threads_use_one():
    """ONNX Runtime splits the batch among threads, each of which computes its own quantization parameters."""
    rng = np.random.default_rng(0)
    sizes = {"W": (1, 4, 32), "R": (1, 8, 32)}
    weights = [numpy_helper.from_array(rng.integers(-128, 128, s).astype(np.int8), n) for n, s in sizes.items()]
    for name in sizes:
        weights.append(numpy_helper.from_array(np.full(1, 0.01, np.float32), f"{name}_scale"))
        weights.append(numpy_helper.from_array(np.zeros(1, np.int8), f"{name}_zero"))
    names = ["x", "W", "R", "", "", "", "", "", "W_scale", "W_zero", "R_scale", "R_zero"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=8)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, "N", 4])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3, 1, "N", 8])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "net", [x], [y], weights), opset_imports=opsets, ir_version=8)
    started = devices.session(model, "cpu")
    assert started.get_session_options().intra_op_num_threads == 1
    assert devices.session(model, "cpu", threads=2).get_session_options().intra_op_num_threads == 2
    inputs = rng.standard_normal((3, 8, 4)).astype(np.float32)
    inputs[:, 4:] *= 100  # rows of larger magnitude, whose scale quantizes the others coarsely
    output = devices.run(started, {"x": inputs})["y"]
    assert not np.allclose(output[:, :, :4], devices.run(started, {"x": inputs[:, :4]})["y"], atol=1e-3)


def test_runner_falls_back_to_the_executor():
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    bfloat16 = onnx.TensorProto.BFLOAT16
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=bfloat16), helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Cast", ["b"], ["y"], to=onnx.TensorProto.FLOAT),
    ]  # fmt: skip
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    run = devices.runner(model)
    assert run.engine == "onnxbridge's executor, since ONNX Runtime has no kernel for Mul of this version with these dtypes"
    inputs = np.array([1.5, -3.0], np.float32)
    np.testing.assert_array_equal(run({"x": inputs, "unused": inputs})["y"], inputs * inputs)
    with pytest.raises(Exception, match="Could not find an implementation for Mul"):
        devices.runner(model, "cpu")


def _model_of(node, *outputs):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3])
    graph = helper.make_graph([node], "g", [x], list(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def test_the_executor_runs_operators_of_versions_without_a_kernel():
    run = devices.runner(_model_of(helper.make_node("GlobalLpPool", ["x"], ["y"]), helper.make_empty_tensor_value_info("y")))
    reason = "ONNX Runtime has no kernel for GlobalLpPool of this version with these dtypes"
    assert run.engine == f"onnxbridge's executor, since {reason}"
    np.testing.assert_allclose(run({"x": np.ones((1, 2, 3), np.float32)})["y"], np.full((1, 2, 1), 3**0.5), rtol=1e-6)


def test_the_executor_runs_models_with_undeclared_outputs_of_dtypes_that_numpy_has_not():
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)
    run = devices.runner(_model_of(node, helper.make_empty_tensor_value_info("y")))
    assert run.engine == "onnxbridge's executor, since ONNX Runtime's Python API does not support bfloat16"
    assert run({"x": np.ones((1, 2, 3), np.float32)})["y"].dtype == ml_dtypes.bfloat16


def test_dropout_in_training_mode_is_not_eliminated():
    """EliminateDropout removes it if it is not the first node, whatever its training_mode is."""
    drop = [numpy_helper.from_array(np.array(v), n) for v, n in ((np.float32(0.5), "ratio"), (True, "train"))]
    nodes = [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Dropout", ["h", "ratio", "train"], ["d"]),
             helper.make_node("Relu", ["d"], ["y"])]  # fmt: skip
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1000]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], drop)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    y = devices.run(devices.session(model, "cpu"), {"x": np.ones(1000, np.float32)})["y"]
    assert 300 < np.count_nonzero(y) < 700


def test_runner_computes_between_qdq_nodes_in_floating_point():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[N,5] x) => (float[N,5] y) <float s = {0.02}, uint8 z = {128}, float t = {0.00392157}, uint8 w = {0}> {
            q = QuantizeLinear(x, s, z)
            d = DequantizeLinear(q, s, z)
            p = Softmax(d)
            r = QuantizeLinear(p, t, w)
            y = DequantizeLinear(r, t, w)
        }""")
    x = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)
    dequantized = np.clip(np.rint(x / np.float32(0.02)) + 128, 0, 255).astype(np.float64) - 128
    e = np.exp(dequantized * np.float32(0.02))
    expected = np.rint(e / e.sum(-1, keepdims=True) / np.float32(0.00392157))
    np.testing.assert_array_equal(np.rint(devices.runner(model)({"x": x})["y"] / np.float32(0.00392157)), expected)


@pytest.mark.parametrize("opset", [26, onnx.defs.onnx_opset_version()])
def test_models_of_onnx_helper_are_verified(opset, tmp_path):
    """By default these have an IR version and an opset that this ONNX Runtime may not support."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(model, tmp_path / "m.onnx")
    older_ir = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    for source in (model, tmp_path / "m.onnx", older_ir):
        assert onnxbridge.convert(source).report.passed


@pytest.mark.parametrize("nested", [False, True])
def test_bernoulli_draws_with_its_probability(nested):
    """ONNX Runtime's draws with the other one."""
    body = "y = Bernoulli (x)"
    if nested:
        branches = ("a () => (float[1000] p) { p = Bernoulli (x) }", "b () => (float[1000] q) { q = Neg (x) }")
        body = f"y = If (c) <then_branch = {branches[0]}, else_branch = {branches[1]}>"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[1000] x, bool c) => (float[1000] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    feeds = {"x": np.full(1000, 0.125, np.float32), "c": np.array(True)}
    found = devices.runner(model)
    assert "Bernoulli" in found.engine
    assert abs(found(feeds)["y"].mean() - 0.125) < 0.06
    assert devices.run(devices.session(model), feeds)["y"].mean() > 0.8  # without this, the executor is not needed
