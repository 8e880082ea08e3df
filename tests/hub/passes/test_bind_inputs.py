"""Inputs bound to numbers: they are constants of the conversion, and the source is run with them."""

import numpy as np
import onnx
import pytest

import onnxbridge
from onnxbridge.errors import ConversionError, UsageError

# Two rates, each with windows of its own: no input suits both branches.
NET = """
<ir_version: 10, opset_import: ["" : 21]>
net (float[1, 12] x, int64 rate, bool[1] doubled) => (float[1, k] y)
<int64 slow = {8000}, int64[2] eights = {1, 8}, int64[2] twelves = {1, 12}, float[1] two = {2}> {
    is_slow = Equal (rate, slow)
    z = If (is_slow) <
        then_branch = slower () => (float[1, 8] a) { a = Reshape (x, eights) },
        else_branch = faster () => (float[1, 12] b) { b = Reshape (x, twelves) }
    >
    w = Mul (z, two)
    y = Where (doubled, w, z)
}
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(NET), path)
    return str(path)


@pytest.mark.parametrize("to", ["onnx", "coreml", "pytorch"])
def test_converts_and_verifies_with_bound_inputs(net, tmp_path, to):
    given = "rate=16000 doubled=True"
    made = onnxbridge.convert(net, to, inputs=given, output=tmp_path / "made")
    assert [v.name for v in made.hub.graph.inputs] == ["x"]
    assert made.report.agrees
    assert "the input rate is bound to 16000" in made.notes
    if to == "coreml":
        return
    report = onnxbridge.verify(net, made.model, inputs=given)
    assert report.agrees
    assert not onnxbridge.verify(net, made.model, inputs="rate=16000 doubled=False").passed


def test_example_inputs_are_kept(net):
    x = np.random.default_rng(0).standard_normal((1, 12)).astype(np.float32)
    made = onnxbridge.convert(net, "onnx", inputs={"x": x, "rate": 16000, "doubled": False}, samples=1)
    assert made.report.samples == 2


def test_the_error_suggests_a_number(net):
    with pytest.raises(ConversionError, match="shape"):
        onnxbridge.convert(net, "coreml", inputs={"x": ((1, 12), "float32")})


@pytest.mark.parametrize(
    ("given", "said"),
    [({"rates": 1}, "no input 'rates'"), ({"rate": 0.5}, "int64"), ({"rate": 1 << 70}, "int64"), ({"doubled": 2}, "bool")],
)
def test_refuses_invalid_numbers(net, given, said):
    with pytest.raises(UsageError, match=said):
        onnxbridge.convert(net, "onnx", inputs=given)


def test_refuses_an_input_with_a_dynamic_shape():
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> net (float[n] x) => (float[n] y) { y = Neg (x) }')
    with pytest.raises(UsageError, match="shape is dynamic"):
        onnxbridge.convert(model, "onnx", inputs={"x": 3})
