"""Sequences whose length, or the positions in them, are known only when the model runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tensorflow as tf

import onnxbridge
from onnxbridge.backends.tensorflow import backend
from onnxbridge.errors import ConversionError
from onnxbridge.runtime import Executor

RNG = np.random.default_rng(0)


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _same(graph, feeds):
    """The module gives what the executor gives."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{graph}')
    found = backend.runner(onnxbridge.convert(model, to="tensorflow", verify=False).artifact)(feeds)
    for got, want in zip(found.values(), Executor(model).run(None, feeds), strict=True):
        assert isinstance(got, list) == isinstance(want, list)
        got, want = (v if isinstance(v, list) else [v] for v in (got, want))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("condition", [True, False])
def test_through_branches(condition):
    graph = """g (bool c, float[2] x, float[3] y) => (s, n, last) {
        s = If (c) <then_branch = t () => (seq(float) a) { a = SequenceConstruct (x, y, x) },
                    else_branch = e () => (seq(float) b) { b = SequenceConstruct (y) }>
        n = SequenceLength (s)
        end = Constant <value_int = -1> ()
        last = SequenceAt (s, end)
    }"""
    _same(graph, {"c": np.array(condition), "x": f(2), "y": f(3)})


@pytest.mark.parametrize("count", [0, 1, 4])
def test_through_loops(count):
    graph = """g (int64 count, float[2] x) => (s, n) {
        empty = SequenceEmpty <dtype = 1> ()
        s = Loop (count, , empty) <body = b (int64 i, bool c, seq(float) before) => (bool again, seq(float) after) {
            again = Identity (c)
            number = Cast <to = 1> (i)
            row = Mul (x, number)
            after = SequenceInsert (before, row)
        }>
        n = SequenceLength (s)
    }"""
    _same(graph, {"count": np.array(count), "x": f(2)})


@pytest.mark.parametrize("position", [-2, -1, 0, 1])
def test_at_any_position(position):
    graph = """g (int64 p, float[2] x, float[3] y) => (inserted, erased, at) {
        s = SequenceConstruct (x, y)
        inserted = SequenceInsert (s, y, p)
        erased = SequenceErase (s, p)
        at = SequenceAt (s, p)
    }"""
    _same(graph, {"p": np.array(position), "x": f(2), "y": f(3)})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("split", [[1, 0, 3], [2, 2]])
def test_parts_of_any_length(axis, split):
    graph = f"""g (int64[k] split, int64 each, float[4,4] x) => (s, t, joined, rows) {{
        s = SplitToSequence <axis = {axis}> (x, split)
        t = SplitToSequence <axis = {axis}> (x, each)
        joined = ConcatFromSequence <axis = {axis}> (t)
        two = Mul (each, each)
        same = SplitToSequence <axis = {axis}> (x, two)
        rows = ConcatFromSequence <axis = {axis}, new_axis = 1> (same)
    }}"""
    _same(graph, {"split": np.int64(split), "each": np.array(len(split)), "x": f(4, 4)})


@pytest.mark.parametrize("keepdims", [0, 1])
def test_single_elements_of_a_dynamic_axis(keepdims):
    graph = f"g (float[n,2] x) => (s) {{ s = SplitToSequence <keepdims = {keepdims}> (x) }}"
    _same(graph, {"x": f(3, 2)})


def test_maps():
    graph = """g (int64[k] split, float[4,2] x, float y) => (s, shapes) {
        parts = SplitToSequence (x, split)
        s, shapes = SequenceMap (parts, y) <body = b (float[n,2] a, float by) => (float[n,2] c, int64[2] d) {
            c = Mul (a, by)
            d = Shape (a)
        }>
    }"""
    _same(graph, {"split": np.int64([1, 3]), "x": f(4, 2), "y": np.array(2.0, np.float32)})


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("size", ["2", "n"])
def test_loops_without_iterations_give_empty_results(count, size):
    graph = f"""g (int64 count, float[{size}] x) => (state, rows) {{
        state, rows = Loop (count, , x) <
            body = b (int64 i, bool c, float[{size}] s) => (bool again, float[{size}] t, float[{size}] r) {{
            again = Identity (c)
            t = Add (s, s)
            r = Neg (s)
        }}>
    }}"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{graph}')
    feeds = {"count": np.array(count), "x": f(2)}
    found = backend.runner(onnxbridge.convert(model, to="tensorflow", verify=False).artifact)(feeds)
    state, rows = Executor(model).run(None, feeds)
    np.testing.assert_array_equal(found["state"], state)
    np.testing.assert_array_equal(found["rows"], rows if count else np.zeros((0, 2 if size == "2" else 0), np.float32))


def test_sequences_are_inside_of_files_but_not_at_their_border(tmp_path):
    inside = """g (int64 count, float[2] x) => (y) {
        empty = SequenceConstruct (x)
        s = Loop (count, , empty) <body = b (int64 i, bool c, seq(float) before) => (bool again, seq(float) after) {
            again = Identity (c)
            after = SequenceInsert (before, x)
        }>
        y = ConcatFromSequence <axis = 0> (s)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]>\n{inside}')
    onnxbridge.convert(model, to="tensorflow", output=tmp_path / "m")
    signature = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    x = f(2)
    np.testing.assert_array_equal(signature(count=tf.constant(2, tf.int64), x=tf.constant(x))["y"], np.tile(x, 3))
    border = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[2] x) => (s) { s = SequenceConstruct (x, x) }'
    )
    with pytest.raises(ConversionError, match="sequences"):
        onnxbridge.convert(border, to="tensorflow", output=tmp_path / "n", verify=False)
