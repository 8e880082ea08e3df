"""Subgraphs as functions (`prune`, frozen functions): inputs and outputs have the names of their tensors."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2 as frozen

import onnxbridge
from onnxbridge.errors import UsageError

v1 = tf.compat.v1


def _imported_graph():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        bias = v1.placeholder(tf.float32, [], name="scope/bias")
        y = tf.identity(x @ tf.constant(np.ones((3, 2), np.float32)) + bias, name="y")
        tf.split(y, 2, axis=1, name="parts")
    definition = graph.as_graph_def()
    return v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), [])


def _convert(function, **options):
    found = onnxbridge.convert(function, to="onnx", **options)
    assert found.report.passed
    return [v.name for v in found.hub.graph.inputs], [v.name for v in found.hub.graph.outputs], found.hub


@pytest.mark.parametrize(("feeds", "fetches", "inputs", "outputs"), [
    (["x:0", "scope/bias:0"], ["y:0", "parts:1"], ["x", "scope/bias"], ["y", "parts:1"]),
    (["scope/bias:0", "x:0"], "y:0", ["scope/bias", "x"], ["y"]),
    ({"a": "x:0", "b": "scope/bias:0"}, {"second": "parts:1", "first": "y:0"}, ["x", "scope/bias"], ["first", "second"]),
    (["x:0", "scope/bias:0"], ["y:0", "parts"], ["x", "scope/bias"], ["y"]),  # the second is an operator, which has no value
    ("y:0", "parts:0", ["y"], ["parts"]),
    ("x:0", "x:0", ["x"], ["x_1"]),
], ids=["lists", "other order", "dicts", "an operator", "inner tensor", "identity"])  # fmt: skip
def test_pruned(feeds, fetches, inputs, outputs):
    assert _convert(_imported_graph().prune(feeds, fetches))[:2] == (inputs, outputs)


def test_pruned_with_variables():
    def build(x):
        w = v1.get_variable("w", [3, 2], initializer=v1.ones_initializer(), use_resource=True)
        return tf.identity(x @ w, name="y")

    wrapped = v1.wrap_function(build, [tf.TensorSpec([None, 3], name="x")])
    names = _convert(wrapped.prune(wrapped.inputs[0], "y:0"))
    assert names[1] == ["y"] and "w" in names[2].graph.initializers


def test_frozen():
    weights = tf.Variable(tf.ones((3, 2)))
    function = tf.function(lambda x, s: {"o": x @ weights * s, "q": [x, x + s]}, autograph=False)
    concrete = function.get_concrete_function(tf.TensorSpec([None, 3], name="x"), tf.TensorSpec([], name="s"))
    assert _convert(frozen(concrete))[:2] == (["x", "s"], ["Identity", "Identity_1", "Identity_2"])
    assert _convert(frozen(concrete), inputs={"x": ((2, 3), "float32")})[2].graph.inputs[0].shape[0] == 2
    assert str(_convert(frozen(concrete), dynamic={"x": {0: "rows"}})[2].graph.inputs[0].shape[0]) == "rows"


def test_frozen_keras_model():
    model = keras.Sequential([layers.Input((8, 8, 3)), layers.Conv2D(4, 3), layers.BatchNormalization(), layers.Flatten()])
    function = tf.function(lambda image: model(image, training=False), autograph=False)
    concrete = function.get_concrete_function(tf.TensorSpec([None, 8, 8, 3], name="image"))
    assert _convert(frozen(concrete))[:2] == (["image"], ["Identity"])


def test_frozen_control_flow():
    def loop(x):
        return tf.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 2.0 + x), (0, x))[1]

    concrete = tf.function(loop, autograph=False).get_concrete_function(tf.TensorSpec([3], name="x"))
    for lower in (False, True):
        inputs, _, hub = _convert(frozen(concrete, lower_control_flow=lower))
        assert inputs == ["x"] and any(n.op_type == "Loop" for n in hub.graph)


def test_a_graph_without_outputs_is_an_error_with_advice():
    with pytest.raises(UsageError, match="has no outputs; name tensors of its graph"):
        onnxbridge.convert(_imported_graph(), to="onnx")
