"""Sizes of a loop's states that no iteration changes are known in its body, and so are the shapes of its outputs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxbridge
from onnxbridge.hub.ir.graphs import bodies_of

LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,4] x, int64 k) => (%s)
<int64[1] zero = {0}, int64[1] one = {1}, bool true = {1}> { %s }"""
KEPT_AND_GROWN = """final, grown, rows = Loop(k, true, x, x) <body = b (int64 i, bool c, state, all) => (d, next, more, row) {
  d = Identity(c) first = Slice(state, zero, one, zero) row = Squeeze(first, zero) half = Mul(row, row)
  next = Unsqueeze(half, zero) more = Concat<axis = 0>(all, state) }>"""
NESTED = """final = Loop(k, true, x) <body = b (int64 i, bool c, state) => (d, next) {
  d = Identity(c) inner = Loop(one, true, state) <body = b2 (int64 i2, bool c2, state2) => (d2, next2) {
    d2 = Identity(c2) next2 = Sin(state2) }>
  next = Cos(inner) }>"""


def _loop(outputs: str, nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(LOOP % (outputs, nodes))


def _sizes(values):
    return [None if v.shape is None else [d if isinstance(d, int) else d.value for d in v.shape] for v in values]


def test_sizes_that_stay_are_declared_and_those_that_grow_are_open():
    node = next(n for n in onnxbridge.load(_loop("final, grown, rows", KEPT_AND_GROWN)).graph if n.op_type == "Loop")
    (body,) = bodies_of(node)
    assert _sizes(body.inputs[2:]) == [[1, 4], [None, 4]]
    assert _sizes(node.outputs) == [[1, 4], [None, 4], [None, 4]]


def test_states_whose_rank_grows_stay_without_shape():
    nodes = "y = Loop(k, true, x) <body = b (int64 i, bool c, s) => (d, t) { d = Identity(c) t = Unsqueeze(s, zero) }>"
    node = next(n for n in onnxbridge.load(_loop("y", nodes)).graph if n.op_type == "Loop")
    assert _sizes([*bodies_of(node)[0].inputs[2:], *node.outputs]) == [None, None]


def test_a_state_that_a_loop_inside_changes_stays_without_shape():
    """Whether the loop inside keeps sizes is not tried while those of the outer one are."""
    node = next(n for n in onnxbridge.load(_loop("final", NESTED)).graph if n.op_type == "Loop")
    assert _sizes([*bodies_of(node)[0].inputs[2:], *node.outputs]) == [None, None]


@pytest.mark.parametrize("target", ["onnx", "pytorch", "tensorflow"])
def test_a_state_that_is_sliced_and_squeezed_converts(target):
    nodes = """final = Loop(k, true, x) <body = b (int64 i, bool c, state) => (d, next) {
      d = Identity(c) first = Slice(state, zero, one, zero) row = Squeeze(first, zero) half = Sin(row)
      next = Unsqueeze(half, zero) }>"""
    assert onnxbridge.convert(_loop("final", nodes), target).report.agrees


@pytest.mark.parametrize("target", ["onnx", "pytorch", "tensorflow"])
def test_a_state_that_grows_converts(target):
    assert onnxbridge.convert(_loop("final, grown, rows", KEPT_AND_GROWN), target).report.agrees


def test_a_loop_without_iterations_may_return_rows_of_a_declared_shape():
    model = _loop("final, rows", KEPT_AND_GROWN)
    feeds = {"x": np.ones((1, 4), np.float32), "k": np.array(0)}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert session.run(["rows"], feeds)[0].shape == (0,)  # it knows no shape
    report = onnxbridge.convert(model, "pytorch", data=[feeds]).report
    assert report.agrees
    assert "without iterations" in str(report)
