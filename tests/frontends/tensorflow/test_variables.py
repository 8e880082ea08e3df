"""Variables that a function changes: inputs and outputs of the model, compared with TensorFlow over several calls."""

from __future__ import annotations

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import onnxbridge
from onnxbridge.errors import ConversionError
from tests.frontends.tensorflow.compare import agree, hub_of

X = [tf.TensorSpec([4], tf.float32, name="x")]


class Stateful(tf.Module):
    def __init__(self):
        super().__init__()
        self.total = tf.Variable([0.5, 0.0, -1.0, 2.0], name="total")
        self.count = tf.Variable(0, name="count")
        self.rows = tf.Variable(np.zeros((6, 4), np.float32), name="rows")
        self.weight = tf.Variable([1.0, 2.0, 3.0, 4.0], name="weight")

    @tf.function(input_signature=X)
    def read_before_and_after(self, x):
        before = self.total * 1.0
        self.total.assign_add(x)
        self.count.assign_add(1)
        return before, self.total * self.weight

    @tf.function(input_signature=X)
    def only_effects(self, x):
        self.total.assign_sub(x)
        self.total.assign(self.total * 2.0)
        return x

    @tf.function(input_signature=X)
    def ring(self, x):
        self.rows[self.count % 6].assign(x)
        self.count.assign_add(1)
        return tf.reduce_sum(self.rows, 0)

    @tf.function(input_signature=X)
    def scattered(self, x):
        self.rows.scatter_update(tf.IndexedSlices(x[None] * 2.0, tf.constant([3])))
        self.rows.scatter_sub(tf.IndexedSlices(tf.stack([x, x]), tf.constant([3, 3])))
        self.rows.scatter_max(tf.IndexedSlices(x[None], tf.constant([0])))
        self.rows.scatter_min(tf.IndexedSlices(x[None], tf.constant([5])))
        self.rows.scatter_nd_add([[1, 0], [2, 3]], x[:2])
        self.rows.scatter_nd_update([[4]], x[None])
        self.rows[2:6:2, 1:].assign(tf.stack([x[:3], x[1:]]))
        self.rows[::-2, 0].assign(x[:3])
        return tf.gather(self.rows, [1, 3])

    @tf.function(input_signature=X)
    def branches(self, x):
        if tf.reduce_sum(x) > 0:
            self.total.assign(x)
        else:
            self.total.assign_sub(x * 2.0)
            self.count.assign(7)
        return self.total + tf.cast(self.count, tf.float32)

    @tf.function(input_signature=X)
    def switch(self, x):
        at = tf.cast(tf.reduce_sum(x) > 0, tf.int32)
        return tf.switch_case(at, [lambda: self.total.assign(x), lambda: self.total.assign_add(x), lambda: self.total * 3.0])

    @tf.function(input_signature=X)
    def loop(self, x):
        for i in tf.range(3):
            self.total.assign(self.total * 0.5 + x)
            if i == 1:
                self.rows.assign(self.rows + x)
        return self.total + tf.reduce_sum(self.rows)

    @tf.function(input_signature=X)
    def until(self, x):
        while tf.reduce_sum(self.total) < 10.0:
            self.total.assign_add(tf.abs(x) + 1.0)
        return x

    @tf.function
    def inner(self, x):
        self.total.assign(x * self.total + 1.0)
        return self.total * 2.0

    @tf.function(input_signature=X)
    def called(self, x):
        return self.inner(x) + self.inner(-x) + self.total


NAMES = [n for n, v in vars(Stateful).items() if hasattr(v, "get_concrete_function") and n != "inner"]


def session_of(hub) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(onnxbridge.convert(hub, verify=False).model.SerializeToString())


@pytest.mark.parametrize("name", NAMES)
def test_calls_in_a_row_give_what_tensorflow_gives(name):
    source = Stateful()
    function = getattr(source, name)
    hub = agree(function)
    states = [v.name for v in hub.graph.inputs if v.name != "x"]
    assert states and [v.name for v in hub.graph.outputs][-len(states) :] == [f"{s}.next" for s in states]
    assert "weight" not in states  # a variable that is only read is a constant
    session = session_of(hub)
    values = {s: np.asarray(getattr(source, s)) for s in states}
    rng = np.random.default_rng(1)
    for _ in range(4):
        x = rng.normal(size=4).astype(np.float32)
        found = dict(zip([o.name for o in hub.graph.outputs], session.run(None, {"x": x, **values}), strict=True))
        expected = tf.nest.flatten(function(tf.constant(x)))
        for f, e in zip(found.values(), expected, strict=False):
            np.testing.assert_allclose(f, e.numpy(), rtol=1e-5, atol=1e-6)
        values = {s: found[f"{s}.next"] for s in states}
        for s in states:
            np.testing.assert_allclose(values[s], getattr(source, s).numpy(), rtol=1e-5, atol=1e-6)


def test_the_source_keeps_its_values_and_a_note_says_where_states_start():
    source = Stateful()
    found = onnxbridge.convert(source.read_before_and_after)
    assert found.report.passed and source.count.numpy() == 0
    np.testing.assert_array_equal(source.total, [0.5, 0.0, -1.0, 2.0])
    assert found.notes == (
        "the input total (and 1 more) is a state: feed total.next of the call before; at first with the values of the source",
    )
    described = {v.name: v.doc_string for v in found.model.graph.input}
    assert described["count"] == "a state: feed count.next of the call before; 0 at first"


@pytest.mark.parametrize("target", ["pytorch", "tensorflow", "coreml"])
def test_a_stateful_recurrent_layer_to_each_target(target):
    x = keras.Input(batch_shape=(2, 5, 3))
    y = keras.layers.GRU(4, stateful=True)(keras.layers.LSTM(4, stateful=True, return_sequences=True, name="first")(x))
    found = onnxbridge.convert(keras.Model(x, y), to=target)
    assert found.report.passed
    assert [v.name for v in found.hub.graph.inputs][1:3] == ["first/rnn_state", "first/rnn_state_1"]


def test_layers_and_functions_that_are_traced_at_the_sizes_of_their_inputs():
    class Counting(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.SimpleRNN(4, stateful=True)
            self.calls = self.add_weight(shape=(), initializer="zeros", name="calls", trainable=False)

        def call(self, x):
            self.calls.assign_add(1.0)
            return self.layer(x) * self.calls

    assert onnxbridge.convert(Counting(), inputs=(np.ones((2, 5, 3), np.float32),)).report.passed
    v = tf.Variable(tf.ones([3]), name="v")

    @tf.function
    def f(a, b):
        v.assign(a * b + v)
        return v * 2.0

    assert onnxbridge.convert(f, inputs=(np.ones(3, np.float32), np.ones(3, np.float32))).report.passed


def test_random_numbers_of_a_seed_generator():
    class Sampling(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = keras.random.SeedGenerator(1)

        def call(self, mean):
            return mean + keras.random.normal(keras.ops.shape(mean), seed=self.seeds)

    x = keras.Input((4,))
    found = onnxbridge.convert(keras.Model(x, Sampling()(x)))
    assert found.report.passed and found.hub.graph.inputs[1].name.endswith("seed_generator_state")


def test_a_saved_model(tmp_path):
    source = Stateful()
    tf.saved_model.save(source, str(tmp_path / "net"), signatures=source.branches)
    found = onnxbridge.convert(tmp_path / "net")
    assert found.report.passed and {v.name for v in found.hub.graph.inputs} == {"x", "total", "count"}


def test_tables_and_variables_of_training_are_refused():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, 0.0)

    @tf.function(input_signature=[tf.TensorSpec([2], tf.string), tf.TensorSpec([2], tf.float32)])
    def insert(key, value):
        table.insert(key, value)
        return value

    with pytest.raises(ConversionError, match="changes a table"):
        hub_of(insert)
    v = tf.Variable(1.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def step(g):
        tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=0.1, delta=g)
        return g

    with pytest.raises(ConversionError, match="ResourceApplyGradientDescent"):
        hub_of(step)
