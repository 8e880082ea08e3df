"""Numbers at which frameworks differ, in every target that computes them: zeros, float64, 8 bits, ties between two pixels."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxbridge

TARGETS = ["pytorch", "tensorflow"]


def _report(graph, target, opset=21, **options):
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g {graph}'
    return onnxbridge.convert(onnx.parser.parse_model(text), to=target, **options).report


@pytest.mark.parametrize("target", [*TARGETS, "coreml"])
def test_the_scale_of_zeros_that_are_quantized_dynamically_is_1(target):
    graph = "(float[2,3] x) => (uint8[2,3] y, float scale, uint8 zero) { y, scale, zero = DynamicQuantizeLinear (x) }"
    assert _report(graph, target, data=[{"x": np.zeros((2, 3), np.float32)}, {"x": np.ones((2, 3), np.float32)}]).agrees


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "node",
    [
        "LeakyRelu (x)", "InstanceNormalization (x, s, s)", "LayerNormalization (x, w)",
        "RMSNormalization (x, w)", "BatchNormalization (x, s, s, s, s)",
    ],
)  # fmt: skip
def test_constants_of_float64_operators_are_exact(node, target):
    """The attributes are float32 numbers: 1e-5 is 9.999999747378752e-06."""
    weights = "<double[4] s = {0.5, 1, 1.5, 2}, double[5] w = {1, 2, 3, 4, 5}>"
    assert _report(f"(double[2,4,3,5] x) => (double[2,4,3,5] y) {weights} {{ y = {node} }}", target, 23).passed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float8e4m3fn", "float8e5m2"])
def test_zero_points_of_8_bit_floats(dtype, target):
    """They are zero in nearly all models, but the standard subtracts them as others."""
    inputs = f"float[2,4] x, {dtype}[2,4] stored, float[4] s, {dtype}[4] zero"
    nodes = "y = QuantizeLinear (x, s, zero)  z = DequantizeLinear (stored, s, zero)"
    assert _report(f"({inputs}) => ({dtype}[2,4] y, float[2,4] z) {{ {nodes} }}", target).agrees


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_nearest_pixels_of_symmetric_coordinates(mode, target):
    """0.4 times 3 pixels: in this order of operations the only coordinate is 1, in others a little less."""
    how = f'coordinate_transformation_mode = "half_pixel_symmetric", mode = "nearest", nearest_mode = "{mode}"'
    graph = f'(float[1,2,4,3] x) => (float[1,2,2,1] y) <float[4] s = {{1, 1, 0.5, 0.4}}> {{ y = Resize <{how}> (x, "", s) }}'
    assert _report(graph, target).passed


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("to", ["uint8", "int8", "uint16", "int16"])
def test_integers_keep_the_low_bits_of_floats_outside_their_range(to, target):
    """The standard leaves it open; ONNX Runtime and PyTorch do so on x86."""
    graph = f"(float[32] x) => ({to}[32] y) {{ y = Cast <to = {onnx.TensorProto.DataType.Value(to.upper())}> (x) }}"
    x = np.tile(np.array([-1.5, -0.5, -129, 200, 300, 40000, -40000, 70000], np.float32), 4)
    assert _report(graph, target, data=[{"x": x}]).passed


@pytest.mark.parametrize("target", TARGETS)
def test_sequences_of_tensors_that_differ_in_shape_are_compared(target):
    graph = "(seq(float[2]) s, float[1,3] x) => (seq(float[]) y) { y = SequenceInsert (s, x) }"
    report = _report(graph, target)
    assert report.agrees and not any("no faults were planted" in note for note in report.notes)


def test_inputs_of_8_bit_floats_are_verified():
    graph = "(float8e4m3fn[3,4] x) => (float[3,4] y) { h = Cast <to = 1> (x)  y = Exp (h) }"
    assert _report(graph, "tensorflow").agrees
