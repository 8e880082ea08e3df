"""Programs in float16 are also verified in float32, since rounding would hide smaller faults."""

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

import onnxbridge
from onnxbridge.backends.coreml import artifact as artifacts
from onnxbridge.backends.coreml.artifact import CoreMLModel
from onnxbridge.errors import VerificationError
from onnxbridge.formats.coreml.float32_program import is_rounded_to_float16
from onnxbridge.runtime.mil import Interpreter

rng = np.random.default_rng(3)


def network():
    """A matrix that is transposed when converting, and a convolution with much smaller values."""
    x, y = helper.make_tensor_value_info("x", 1, [1, 4, 6, 6]), helper.make_tensor_value_info("y", 1, [1, 4, 6, 6])
    constants = {
        "kernel": rng.standard_normal((4, 4, 3, 3)) / 3000, "bias": rng.standard_normal(4) / 3000,
        "matrix": rng.standard_normal((6, 6)), "shift": rng.standard_normal((4, 1, 1)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["matrix"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["m"]),
        helper.make_node("Sigmoid", ["m"], ["s"]),
        helper.make_node("Add", ["c", "s"], ["a"]),
        helper.make_node("Add", ["a", "shift"], ["y"]),
    ]
    return model(nodes, [x], [y], constants)


def model(nodes, inputs, outputs, constants):
    initializers = [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "half", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def plant_fault(monkeypatch, find, change):
    """Change a constant of every program that is run: `find` is the operator and the parameter."""

    class Planted(Interpreter):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            slot = next(op.inputs[find[1]][0].index for op in self.block.operations if op.op == find[0])
            self.replace({slot: change(self.constant(slot))})

    monkeypatch.setattr(artifacts, "Interpreter", Planted)


def failed_verification(**options):
    with pytest.raises(VerificationError) as raised:
        onnxbridge.convert(network(), "coreml", compute_precision="fp16", samples=1, **options)
    return raised.value


def test_note_reports_the_error_of_the_float32_run():
    made = onnxbridge.convert(network(), "coreml", compute_precision="fp16", samples=1)
    (note,) = (n for n in made.report.notes if n.startswith("computed in float32, y is off by"))
    assert float(note.split()[7]) < 1e-6 < made.report.outputs[0].max_abs


def test_fault_smaller_than_the_rounding_is_found(monkeypatch):
    plant_fault(monkeypatch, ("conv", "pad"), lambda pads: pads[::-1] * 0 + np.array([2, 0, 1, 1], np.int32))
    monkeypatch.setattr(CoreMLModel, "in_float32", lambda self: None)
    by_fp16_alone = onnxbridge.convert(network(), "coreml", compute_precision="fp16", samples=1).report
    assert by_fp16_alone.verdict == "WEAK" and "planted faults would have been caught" in by_fp16_alone.weaknesses[0]
    monkeypatch.undo()
    plant_fault(monkeypatch, ("conv", "pad"), lambda pads: pads[::-1] * 0 + np.array([2, 0, 1, 1], np.int32))
    assert failed_verification().report.candidate == "computed in float32"


@pytest.mark.parametrize("options", [{}, {"minimum_deployment_target": "iOS15"}])
def test_wrong_weight_is_named(monkeypatch, options):
    plant_fault(monkeypatch, ("conv", "weight"), lambda w: (w * np.float32(1.05)).astype(w.dtype))
    assert "the weight of c_cast_fp16 is not its original value rounded to float16" in str(failed_verification(**options))


@pytest.mark.slow
def test_saved_package_is_verified_in_float32(tmp_path, monkeypatch):
    onnx.save(network(), tmp_path / "net.onnx")
    made = onnxbridge.convert(str(tmp_path / "net.onnx"), "coreml", compute_precision="fp16", samples=1)
    (package,) = made.save(tmp_path / "net.mlpackage")
    files = str(tmp_path / "net.onnx"), str(package)
    report = onnxbridge.verify(*files, samples=1)
    assert report.passed and any("computed in float32" in n for n in report.notes)
    plant_fault(monkeypatch, ("conv", "weight"), lambda w: (w * np.float32(1.05)).astype(w.dtype))
    with pytest.raises(VerificationError, match="is not its original value"):
        onnxbridge.verify(*files, samples=1)


def test_states_are_float32_in_the_float32_run():
    past, new = helper.make_tensor_value_info("past", 1, [1, 4]), helper.make_tensor_value_info("new", 1, [1, 4])
    x, y = helper.make_tensor_value_info("x", 1, [1, 4]), helper.make_tensor_value_info("y", 1, [1, 4])
    nodes = [
        helper.make_node("Mul", ["past", "decay"], ["kept"]),
        helper.make_node("Add", ["kept", "x"], ["new"]),
        helper.make_node("Tanh", ["new"], ["y"]),
    ]
    net = model(nodes, [x, past], [y, new], {"decay": np.full((1, 4), 0.7)})
    options = {"minimum_deployment_target": "iOS18", "state": ["past=new"], "samples": 1}
    for precision in ("fp16", "fp32"):  # states are float16 in both
        made = onnxbridge.convert(net, "coreml", compute_precision=precision, **options)
        (note,) = (n for n in made.report.notes if n.startswith("computed in float32"))
        assert float(note.split()[7]) < 1e-6


@pytest.mark.parametrize("precision", ["fp16", "mixed"])
def test_constants_computed_by_other_operators_are_known(precision):
    """Weights that the pass rounds before it visits their reader, gates of recurrent layers, embedding tables."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.rnn = nn.Embedding(300, 8), nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True)
            self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 4)

        def forward(self, x):
            return self.head(self.norm(self.rnn(self.table(x))[0])).softmax(-1)

    torch.manual_seed(0)
    made = onnxbridge.convert(
        Net().eval(), "coreml", inputs=(torch.randint(0, 300, (2, 5)),), compute_precision=precision, samples=1
    )
    assert any(n.startswith("computed in float32") for n in made.report.notes)


def test_is_rounded_to_float16():
    original = np.array([1.0, 0.1, 1e-9, 3e-6, -2.5, np.inf], np.float32)
    assert is_rounded_to_float16(original.astype(np.float16), original)
    assert not is_rounded_to_float16((original * np.float32(1.01)).astype(np.float16), original)
    lifted = np.array([2.0**-14], np.float16)  # coremltools raises small epsilons in small arrays
    assert is_rounded_to_float16(lifted, np.array([1e-5], np.float32)) and not is_rounded_to_float16(
        np.repeat(lifted, 500), np.full(500, 1e-5, np.float32)
    )


@pytest.mark.parametrize("target", ["iOS16", "iOS18"])
def test_quantized_weights_are_known(target):
    x, y = helper.make_tensor_value_info("x", 1, [3, 64]), helper.make_tensor_value_info("y", 1, [3, 40])
    nodes = [
        helper.make_node("DequantizeLinear", ["bytes", "scale"], ["w"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["y"]),
    ]
    net = model(nodes, [x], [y], {"scale": rng.random(40) / 500})
    net.graph.initializer.append(numpy_helper.from_array(rng.integers(-127, 127, (64, 40)).astype(np.int8), "bytes"))
    made = onnxbridge.convert(net, "coreml", compute_precision="fp16", minimum_deployment_target=target, samples=1)
    assert Interpreter(made.artifact.model).packed and any(n.startswith("computed in float32") for n in made.report.notes)


def test_overflow_suggests_mixed_precision():
    class Large(nn.Module):
        def forward(self, x):
            return (x * 40000 + x * 40000).sum(-1)

    with pytest.raises(VerificationError, match="compute_precision=mixed keeps values"):
        onnxbridge.convert(Large(), to="coreml", inputs="x:float32[2,64]", compute_precision="fp16")
    assert onnxbridge.convert(Large(), to="coreml", inputs="x:float32[2,64]", compute_precision="mixed").report.passed
