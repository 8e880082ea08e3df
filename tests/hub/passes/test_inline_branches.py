"""Branches whose condition is known when converting."""

import numpy as np
import pytest
from onnx import parser

import onnxbridge
from onnxbridge.errors import VerificationError
from onnxbridge.runtime import devices

# Removes the last axis if its size is 1, as exporters write `x.squeeze(-1)`: at other sizes the Squeeze is invalid.
SQUEEZE = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, 4, L] x) => (float[] y)
<int64[1] last = {2}, int64[1] one = {1}> {
    shape = Shape (x)
    size = Gather <axis = 0> (shape, last)
    single = Equal (size, one)
    r = If (single) <then_branch = t () => (a) <int64[1] axis = {2}> { s = Squeeze (x, axis) a = Neg (s) },
                     else_branch = e () => (a) { a = Identity (x) }>
    y = Abs (r)
}"""


def ops(model):
    return [node.op_type for node in model.graph.all_nodes()]


@pytest.mark.parametrize(("size", "expected"), [(1, ["Squeeze", "Neg", "Abs"]), (2, ["Abs"])])
def test_the_branch_for_other_sizes_disappears(size, expected):
    made = onnxbridge.convert(parser.parse_model(SQUEEZE), inputs=f"x:float32[3,4,{size}]")
    assert ops(made.hub) == expected and made.report.agrees
    assert made.hub.graph.outputs[0].shape.numpy() == ((3, 4) if size == 1 else (3, 4, 2))


def test_an_unknown_condition_stays():
    assert "If" in ops(onnxbridge.load(parser.parse_model(SQUEEZE)))


@pytest.mark.parametrize("rate", [0, 1, 7])
def test_branches_that_follow_from_a_bound_input(rate):
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, int64 rate) => (float[2] y, float[2] z, float[2] u)
    <int64 none = {0}, int64 one = {1}> {
        zero = Equal (rate, none)
        first = Equal (rate, one)
        y, z = If (zero) <
            then_branch = t () => (a, b) <float[2] w = {2, 3}> { a = Mul (x, w) b = Identity (a) },
            else_branch = e () => (a, b) <float[2] w = {4, 5}> {
                a = Add (x, w)
                b = If (first) <then_branch = t1 () => (c) { c = Sub (x, a) }, else_branch = e1 () => (c) { c = Identity (x) }>
            }>
        u = If (first) <
            then_branch = t2 () => (a) <float[2] w = {6, 7}> { a = Mul (x, w) },
            else_branch = e2 () => (a) <float[2] w = {8, 9}> { a = Add (x, w) }>
    }"""
    source = parser.parse_model(text)
    made = onnxbridge.convert(source, inputs=f"rate={rate}")
    assert made.report.agrees and "If" not in ops(made.hub)
    x = np.array([1, -2], np.float32)
    expected = devices.runner(source)({"x": x, "rate": np.array(rate)})
    found = devices.runner(made.model)({"x": x})
    assert list(found) == ["y", "z", "u"] and all(np.array_equal(found[name], expected[name]) for name in found)


def test_a_branch_that_does_not_fit_the_sizes_but_may_be_chosen():
    text = SQUEEZE.replace("(float[N, 4, L] x)", "(float[N, 4, L] x, bool single)").replace("single = Equal (size, one)", "")
    source = parser.parse_model(text)
    with pytest.raises(VerificationError, match=r"Squeeze.*leave them dynamic, or bind the input .*--inputs NAME=NUMBER"):
        onnxbridge.convert(source, inputs="x:float32[3,4,2]")
    assert onnxbridge.convert(source, inputs="x:float32[3,4,2] single=0").report.agrees
