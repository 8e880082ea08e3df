"""Inputs that MXNet's operators do not take, or compute otherwise: no dimensions, other dtypes, slices from beyond the ends."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnxbridge
from onnxbridge.errors import ConversionError
from onnxbridge.runtime.mxnet import service


def _converted(graph):
    text = f'<ir_version: 10, opset_import: ["" : 20]> g {graph}'
    return onnxbridge.convert(onnx.parser.parse_model(text), to="mxnet")


@pytest.mark.parametrize("op", ["LeakyRelu", "Elu", "Selu", "HardSigmoid", "Gelu", "Round", "Softplus", "Sigmoid"])
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_arrays_without_dimensions(op, dtype):
    assert _converted(f"({dtype} x) => ({dtype} y) {{ y = {op} (x) }}").report.agrees


@pytest.mark.parametrize("op", ["Elu <alpha = 0.5>", "Selu", "HardSigmoid <alpha = 0.25>", "Gelu"])
def test_float64(op):
    assert _converted(f"(double[3,4] x) => (double[3,4] y) {{ y = {op} (x) }}").report.agrees


def test_log_softmax_of_few_classes():
    """oneDNN's, which MXNet would take, is off by 3e-6."""
    assert _converted("(float[4,2] x) => (float[4,2] y) { y = LogSoftmax (x) }").report.agrees


@pytest.mark.parametrize("bounds", [(-9, -9, -2), (-5, -9, -1), (9, -9, -1), (2, -9, -2)])
def test_slices_that_go_back(bounds):
    start, end, step = bounds
    size = 1 if start < 0 else 4 if step == -1 else 2
    constants = f"<int64[1] a = {{{start}}}, int64[1] b = {{{end}}}, int64[1] c = {{1}}, int64[1] d = {{{step}}}>"
    assert _converted(f"(float[3,4] x) => (float[3,{size}] y) {constants} {{ y = Slice (x, a, b, c, d) }}").report.agrees


@pytest.mark.parametrize("mode", ["edge", "reflect", "constant"])
@pytest.mark.parametrize("dtype", ["float", "int32"])
def test_padding_of_a_vector(dtype, mode):
    graph = f'({dtype}[3] x) => ({dtype}[6] y) <int64[2] pads = {{1, 2}}> {{ y = Pad <mode = "{mode}"> (x, pads) }}'
    assert _converted(graph).report.agrees


def test_one_element_that_is_gathered():
    graph = "(float[2,3,4] x) => (float[4] y) <int64[2] at = {1, -1}> { y = GatherND (x, at) }"
    assert _converted(graph).report.agrees


def test_dilated_transposed_convolutions_of_volumes():
    weight = ", ".join(str(i / 8) for i in range(16))
    graph = f"""(float[1,1,3,4,3] x) => (float[1,2,4,5,5] y) <float[1,2,2,2,2] w = {{{weight}}}>
                {{ y = ConvTranspose <dilations = [1, 1, 2]> (x, w) }}"""
    assert _converted(graph).report.agrees


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("(uint32[2] x) => (float[2] y) { y = Cast <to = 1> (x) }", "the input x x1: MXNet has no arrays of uint32"),
        ("(float[2] x) => (int16[2] y) { y = Cast <to = 5> (x) }", "the output y x1: MXNet has no arrays of int16"),
        ('(float[2] x) => (string[1] y, float[2] z) { y = Constant <value_strings = ["a"]> () z = Abs (x) }', "has no strings"),
    ],
)
def test_arrays_that_mxnet_has_not_are_refused(graph, message):
    with pytest.raises(ConversionError, match=message):
        _converted(graph)


@pytest.mark.parametrize("dtype", ["float", "float16", "int64", "bool"])
def test_arrays_without_elements_do_not_disturb_others(dtype):
    """A node that allocates nothing fails, which MXNet reports at other results."""
    graph = f"""({dtype}[2,3] x) => ({dtype}[2,3] y, {dtype}[2,0] none, {dtype}[0,2] also, {dtype}[2,3] z)
                <int64[1] a = {{3}}, int64[1] b = {{9}}, int64[1] c = {{1}}> {{
                y = Identity (x) none = Slice (x, a, b, c) also = Transpose (none) z = Concat <axis = 1> (none, x) }}"""
    assert _converted(graph).report.agrees


@pytest.mark.parametrize("dtype", ["float16", "double"])
def test_instance_normalization_of_other_floats(dtype):
    graph = f"({dtype}[2,3,4,5] x, {dtype}[3] s, {dtype}[3] b) => ({dtype}[2,3,4,5] y) {{ y = InstanceNormalization (x, s, b) }}"
    assert _converted(graph).report.agrees


def test_float16_images_are_resized():
    graph = """(float16[1,2,4,3] x) => (float16[1,2,6,7] y) <int64[4] sizes = {1, 2, 6, 7}>
               { y = Resize <mode = "linear"> (x, , , sizes) }"""
    assert _converted(graph).report.agrees


@pytest.mark.parametrize("op", ["GRU", "LSTM"])
def test_recurrent_layers_in_both_directions_that_mxnet_has_not(op):
    """ONNX's GRU resets before the product, MXNet's after it; MXNet's LSTM takes no lengths here."""
    gates = 3 if op == "GRU" else 4
    rng = np.random.default_rng(0)
    weights = {"w": (2, gates * 3, 4), "r": (2, gates * 3, 3), "b": (2, gates * 6)}
    tensors = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32) / 3, n) for n, s in weights.items()]
    lengths = "" if op == "GRU" else ", lengths"
    graph = f"(float[5,2,4] x, int32[2] lengths) => (float[5,2,2,3] y, int32[2] used) {{ \
        y = {op} <direction = \"bidirectional\", hidden_size = 3> (x, w, r, b{lengths}) used = Identity (lengths) }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> g {graph}')
    model.graph.initializer.extend(tensors)
    assert onnxbridge.convert(model, to="mxnet").report.agrees


def test_a_loop_whose_collected_results_are_not_read():
    graph = """(float[2] x) => (float[2] y) {
        y, all = Loop (, , x) <body = b (int64 i, bool c, float[2] s) => (bool more, float[2] t, float[2] each)
            { two = Constant <value_int = 2> () more = Less (i, two) t = Sin (s) each = Cos (t) }> }"""
    assert _converted(graph).report.agrees


@pytest.mark.parametrize(
    ("node", "mean", "deviation"),
    [
        ("y = RandomUniformLike <low = 2.0, high = 4.0> (x)", 3, 12**-0.5 * 2),
        ("y = RandomNormalLike <mean = -1.0, scale = 0.5> (x)", -1, 0.5),
        ("y = RandomNormal <mean = 1.0, shape = [50, 60]> ()", 1, 1),
        ("y = Bernoulli (x)", 0.25, 0.1875**0.5),
    ],
)
def test_random_numbers(tmp_path, node, mean, deviation):
    """Means and deviations of 3,000 samples, within five standard errors of the mean; a deviation has smaller ones."""
    found = _converted(f"(float[50,60] x) => (float[50,60] y) {{ {node} }}")
    assert found.report.agrees and "it is random" in str(found.report)
    symbol, parameters = found.save(tmp_path / "net")
    [samples] = service().run(symbol, parameters, {"x": np.full((50, 60), 0.25, np.float32)}).values()
    bound = 5 * deviation / 3000**0.5
    assert abs(samples.mean() - mean) < bound and abs(samples.std() - deviation) < bound


@pytest.mark.parametrize("last", ["Softplus", "Elu", "Gelu", "HardSigmoid", "Abs", "Sqrt", "Exp", "Mish", "HardSwish"])
@pytest.mark.parametrize("other", ["Relu (d)", "Sigmoid (d)", "Identity (d)"])
def test_a_dense_layer_with_two_users(last, other):
    """MXNet would fuse the layer with the activation, and give the result to both."""
    weight, bias = (", ".join(str(v / 8) for v in range(-n, n)) for n in (4, 2))
    found = _converted(f"""(float[2] x) => (float[4] y) <float[2,4] w = {{{weight}}}, float[4] b = {{{bias}}}>
                           {{ m = MatMul (x, w) d = Add (m, b) s = {last} (d) o = {other} y = Sub (s, o) }}""")
    assert found.report.agrees
