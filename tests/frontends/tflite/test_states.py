"""Variables of TensorFlow Lite models: inputs and outputs, compared with the interpreter over several calls."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import onnxbridge
from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, constant, model
from tests.frontends.tflite.compare import agree, hub_of, saved

VALUES = np.array([1.0, -2.0, 0.5], np.float32)


class Filters(tf.Module):
    def __init__(self):
        super().__init__()
        self.past = tf.Variable(np.full((1, 4, 3), 0.25, np.float32), name="past")
        self.count = tf.Variable(0.0, name="count")
        self.weight = tf.Variable(np.linspace(-1, 1, 15).reshape(5, 3).astype(np.float32), name="weight")

    @tf.function(input_signature=[tf.TensorSpec([1, 1, 3], tf.float32, name="frame")])
    def stream(self, frame):
        window = tf.concat([self.past, frame], 1)
        self.past.assign(window[:, 1:])
        self.count.assign_add(1.0)
        return {"filtered": tf.reduce_sum(window * self.weight, 1) / self.count}

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="by")])
    def reset(self, by):
        self.past.assign(self.past * 0.0 + by)
        return {"past": self.past * 1.0}


def file_of(tmp_path, source, *signatures):
    tf.saved_model.save(source, str(tmp_path / "saved"), signatures={s: getattr(source, s) for s in signatures})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=list(signatures))
    converter.experimental_enable_resource_variables = True
    return saved(tmp_path, converter.convert())


def start_at(name, value):
    """The graph that gives a variable its first value."""
    handle = T(type="RESOURCE", shape=())
    named = Op("VAR_HANDLE", [], [handle], "VarHandleOptions", {"container": "", "shared_name": name})
    return G([], [], [named, Op("ASSIGN_VARIABLE", [handle, constant(value)], [])])


@pytest.mark.parametrize("signatures", [["stream"], ["reset", "stream"]])
def test_calls_in_a_row_give_what_the_interpreter_gives(tmp_path, signatures):
    path = file_of(tmp_path, Filters(), *signatures)
    found = onnxbridge.convert((path, "stream"))
    assert found.report.passed
    assert sorted(v.name for v in found.hub.graph.inputs) == ["count", "frame", "past"]
    assert sorted(v.name for v in found.hub.graph.outputs) == ["count.next", "filtered", "past.next"]
    described = {v.name: v.doc_string for v in found.model.graph.input}
    assert described["past"] == "a state: feed past.next of the call before; 0.25 at first"
    session = onnxruntime.InferenceSession(found.model.SerializeToString())
    run = Interpreter(str(path)).get_signature_runner("stream")
    states = {"past": np.full((1, 4, 3), 0.25, np.float32), "count": np.array(0.0, np.float32)}
    names = [o.name for o in session.get_outputs()]
    for step in range(6):
        frame = np.sin(np.arange(3, dtype=np.float32) + step).reshape(1, 1, 3)
        results = dict(zip(names, session.run(None, {"frame": frame, **states}), strict=True))
        np.testing.assert_allclose(results["filtered"], run(frame=frame)["filtered"], rtol=1e-5, atol=1e-6)
        states = {name: results[f"{name}.next"] for name in states}


def test_a_quantized_state_keeps_its_integers(tmp_path):
    def quantized(**more):
        return T(type="INT8", shape=(3,), scale=0.1, zero_point=3, **more)

    x, doubled, y, before = quantized(name="x"), quantized(name="doubled"), quantized(name="y"), quantized(name="before")
    x.value = np.array([3, 10, -20], np.int8)
    handle = T(type="RESOURCE", shape=())
    named = {"container": "", "shared_name": "state"}
    ops = [
        Op("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1}),
        Op("VAR_HANDLE", [], [handle], "VarHandleOptions", named),
        Op("READ_VARIABLE", [handle], [before], "ReadVariableOptions"),
        Op("ADD", [x, before], [y], "AddOptions"),
        Op("ASSIGN_VARIABLE", [handle, y], [], "AssignVariableOptions"),
        Op("READ_VARIABLE", [handle], [doubled], "ReadVariableOptions"),
    ]
    source = saved(tmp_path, model(G([x], [doubled], ops), start_at("state", np.full(3, 3, np.int8))))
    hub = agree(source, {"x": x.value, "state": np.array([-5, 0, 100], np.int8)})
    assert [(v.name, v.dtype.name) for v in hub.graph.inputs] == [("x", "INT8"), ("state", "INT8")]
    assert hub.graph.inputs[1].doc_string.endswith("3 at first") and len(hub.graph.outputs) == 2


def test_a_variable_that_is_only_read_is_a_constant(tmp_path):
    x, y, w = T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y"), T(type="FLOAT32", shape=(3,), name="w")
    handle = T(type="RESOURCE", shape=())
    named = {"container": "", "shared_name": "w"}
    ops = [
        Op("CALL_ONCE", [], [], "CallOnceOptions", {"init_subgraph_index": 1}),
        Op("VAR_HANDLE", [], [handle], "VarHandleOptions", named),
        Op("READ_VARIABLE", [handle], [w], "ReadVariableOptions"),
        Op("MUL", [x, w], [y], "MulOptions"),
    ]
    hub = agree(saved(tmp_path, model(G([x], [y], ops), start_at("w", VALUES))), {"x": VALUES})
    assert [v.name for v in hub.graph.inputs] == ["x"]


@pytest.mark.parametrize("kind", ["without a value", "in a branch"])
def test_other_variables_are_refused_by_name(tmp_path, kind):
    x, y = T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y")
    handle = T(type="RESOURCE", shape=())
    use = [
        Op("VAR_HANDLE", [], [handle], "VarHandleOptions", {"container": "", "shared_name": "state"}),
        Op("READ_VARIABLE", [handle], [y], "ReadVariableOptions"),
    ]
    graphs = [G([x], [y], use)]
    if kind == "in a branch":
        which, result = T(np.array(True), name="which"), T(type="FLOAT32", shape=(3,), name="result")
        options = {"then_subgraph_index": 1, "else_subgraph_index": 1}
        graphs = [G([which], [result], [Op("IF", [which], [result], "IfOptions", options)]), G([], [y], use)]
    with pytest.raises(ConversionError) as raised:
        hub_of(saved(tmp_path, model(*graphs)))
    reasons = {p.op: p.reason for p in raised.value.problems}
    assert "that a branch or loop uses, or that has no value at first" in reasons["VAR_HANDLE"]


def test_operators_on_variables_without_their_inputs_are_refused(tmp_path):
    x, y = T(VALUES, name="x"), T(type="FLOAT32", shape=(3,), name="y")
    handle = T(type="RESOURCE", shape=())
    named = {"container": "", "shared_name": "state"}
    for broken in (Op("READ_VARIABLE", [], [y]), Op("ASSIGN_VARIABLE", [handle], []), Op("VAR_HANDLE", [], [])):
        ops = [Op("VAR_HANDLE", [], [handle], "VarHandleOptions", named), broken, Op("ABS", [x], [y])]
        with pytest.raises(ConversionError, match="VAR_HANDLE"):
            hub_of(saved(tmp_path, model(G([x], [y], ops))))
