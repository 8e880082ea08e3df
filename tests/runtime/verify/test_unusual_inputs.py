"""NaN, infinities and empty inputs are compared where the operators of a model define what they give."""

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge.hub.io import onnx_files
from onnxbridge.runtime.verify.samples.random_inputs import samples_for
from onnxbridge.runtime.verify.samples.unusual_inputs import unusual_inputs


def model_of(text):
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 24]> {text}')


def verify(tmp_path, *texts):
    paths = [tmp_path / f"{i}.onnx" for i, _ in enumerate(texts)]
    for path, text in zip(paths, texts, strict=True):
        onnx.save(model_of(text), path)
    return onnxbridge.verify(*paths)


def unusual(text, bounds=None):
    graph = onnx_files.from_proto(model_of(text)).graph
    return dict(unusual_inputs(graph, samples_for(graph, 1)[0], 0, bounds or {}))


SUM = "g (float[N,4] x, int64[N] n) => (float[N,4] y) { y = Add(x, x) }"


def test_inputs():
    found = unusual(SUM)
    x = found["inputs with NaN and infinities"]["x"]
    assert np.isnan(x).any() and (np.isfinite(x).sum() == 6) and found["empty inputs"]["x"].shape == (0, 4)


NAMES = ["inputs with NaN and infinities", "empty inputs"]


@pytest.mark.parametrize(
    ("op", "names"),
    [("Relu", NAMES[1:]), ("ReduceMax", []), ("Sqrt", NAMES), ("ReduceSum", ["inputs with NaN", NAMES[1]])],
)
def test_only_where_the_operators_define_their_result(op, names):
    assert list(unusual(f"g (float[N,4] x) => (float[n,m] y) {{ y = {op}(x) }}")) == names


def test_sums_meet_no_infinities():
    x = unusual("g (float[N,4] x) => (float[n,m] y) { y = ReduceSum(x) }")["inputs with NaN"]["x"]
    assert np.isnan(x).any() and not np.isinf(x).any()


def test_pairs_that_may_be_complex_numbers_stay_finite():
    assert list(unusual("g (float[N,2] x) => (float[n,m] y) { y = Mul(x, x) }")) == NAMES[1:]


def test_a_size_that_is_at_least_one_is_not_zero():
    assert "empty inputs" not in unusual(SUM, {"N": (1, None)})


def test_an_error_at_nan_is_found(tmp_path):
    greater = "g (float[5] x, float[5] t) => (bool[5] y) { y = Greater(x, t) }"
    negated = "g (float[5] x, float[5] t) => (bool[5] y) { z = LessOrEqual(x, t)  y = Not(z) }"
    assert verify(tmp_path, greater, greater).agrees
    report = verify(tmp_path, greater, negated)
    assert not report.agrees and "on inputs with NaN and infinities" in report.outputs[0].notes


def test_an_error_at_an_empty_input_is_found(tmp_path):
    product = "g (float[N] x) => (float[1] y) { y = ReduceProd(x) }"
    other = """g (float[N] x) => (float[1] y) {
        o = Constant<value = float[1] {1.0}>()  p = ReduceProd(x)  n = Size(x)  f = Cast<to = 1>(n)
        a = Min(f, o)  y = Mul(a, p) }"""
    report = verify(tmp_path, product, other)
    assert not report.agrees and "on empty inputs" in report.outputs[0].notes


NAN_REPLACED = "n = IsNaN(x)  h = Where(n, o, x)  y = MaxPool<kernel_shape = [2]>(h) "
NAN_BEFORE_ITS_TEST = "y = MaxPool<kernel_shape = [2]>(x)  z = IsNaN(x) "


@pytest.mark.parametrize(
    ("nodes", "outputs", "drawn"),
    [(NAN_REPLACED, "float[1, 1, 7] y", True), ("y = Abs(x)  z = IsNaN(x)", "float[1, 1, 8] y, bool[1, 1, 8] z", True),
     (NAN_BEFORE_ITS_TEST, "float[1, 1, 7] y, bool[1, 1, 8] z", False)],
)  # fmt: skip
def test_nan_is_drawn_only_where_no_operator_leaves_open_what_it_makes_of_it(nodes, outputs, drawn):
    model = model_of(f"g (float[1, 1, 8] x) => ({outputs}) <float o = {{0.0}}> {{ {nodes} }}")
    samples = samples_for(onnx_files.from_proto(model).graph, 3)
    assert any(np.isnan(s["x"]).any() for s in samples) == drawn


def test_nan_and_infinity_are_drawn_where_the_graph_looks_for_them(tmp_path):
    report = verify(tmp_path, *["g (float[8] x) => (bool[8] y, bool[8] z) { y = IsNaN(x)  z = IsInf(x) }"] * 2)
    assert report.verdict == "PASSED"
