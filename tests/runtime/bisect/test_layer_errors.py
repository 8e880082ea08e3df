"""The error of each layer: which layers are found, and where an error begins."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxbridge


@pytest.mark.parametrize("target", ["onnx", "pytorch", "tensorflow", "coreml", "mxnet"])
def test_a_right_conversion_is_as_close_as_rounding(network_file, target):
    report = onnxbridge.convert(network_file, target, layers=True).report
    assert report.layers, report.notes
    assert all(layer.error <= 16 * layer.rounding + 1e-6 for layer in report.layers)


def test_an_error_begins_at_the_wrong_layer(network_file, tmp_path):
    model = onnx.load(network_file)
    weight = next(t for t in model.graph.initializer if t.name == "fc.weight")
    weight.CopyFrom(numpy_helper.from_array(1.1 * numpy_helper.to_array(weight), weight.name))
    onnx.save(model, tmp_path / "wrong.onnx")
    layers = onnxbridge.verify(network_file, tmp_path / "wrong.onnx", layers=True).layers
    wrong = [layer.op for layer in layers if layer.error > 1e-3]
    right = [layer.op for layer in layers if layer.error < 1e-6]
    assert wrong == ["Gemm", "Softmax"] and right == ["Conv", "Relu", "MaxPool", "Flatten"]
    found = onnxbridge.bisect(network_file, tmp_path / "wrong.onnx")
    assert [layer.op for layer in found.layers if layer.error > 1e-3] == wrong
    states = {node.op: node.state for node in found.graph.nodes}
    assert states["Gemm"] == "first" and states["Flatten"] == "agrees" and states["Softmax"] == "differs"


def test_float16_shows_its_layers_under_the_reference_s_names(network_file):
    layers = onnxbridge.convert(network_file, "coreml", compute_precision="fp16", layers=True).report.layers
    assert len(layers) >= 4 and max(layer.error for layer in layers) > 1e-5


def test_exchanged_channels_show(tmp_path, network_file):
    """The same elements in another order along an axis are an error, too."""
    model = onnx.load(network_file)
    weight = next(t for t in model.graph.initializer if t.name == "conv.weight")
    array = numpy_helper.to_array(weight)[[1, 0, 2, 3]]
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), weight.name))
    onnx.save(model, tmp_path / "exchanged.onnx")
    layers = onnxbridge.verify(network_file, tmp_path / "exchanged.onnx", layers=True).layers
    assert next(layer for layer in layers if layer.op == "Conv").error > 1e-2


def test_a_recording_has_no_layers(network_file, tmp_path):
    golden = tmp_path / "golden.npz"
    onnxbridge.verify(network_file, golden=golden)
    assert onnxbridge.verify(network_file, golden=golden, layers=True).layers == ()
