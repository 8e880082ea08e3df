"""Recurrent layers with masks, sequence lengths and other activations are LSTM, GRU and RNN, and compute what Keras computes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime
import pytest

import onnxbridge

tf = pytest.importorskip("tensorflow")
K, L = tf.keras, tf.keras.layers
RECURRENT = ("LSTM", "GRU", "RNN", "Loop")


@pytest.fixture(autouse=True)
def seed():
    K.utils.set_random_seed(0)


def converted(model):
    result = onnxbridge.convert(model, "onnx")
    assert result.report.agrees
    counts = Counter(n.op_type for n in result.model.graph.node)
    return result.model, {op: n for op, n in counts.items() if op in RECURRENT}


def run(proto, *arrays):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), arrays, strict=True)))


def stack(*layers, shape=(None, 5)):
    return K.Sequential([K.Input(shape), *layers])


def batch_with_masks():
    """Sequences that are full, end early, begin late, have gaps, and are empty."""
    x = np.random.default_rng(0).normal(size=(5, 7, 5)).astype(np.float32)
    kept = np.array([[step == "1" for step in steps] for steps in ("1111111", "1110000", "0011111", "0101101", "0000000")])
    return x * kept[:, :, None].astype(np.float32)


MASKED = {
    "sequences": (lambda: [L.LSTM(4, return_sequences=True)], {"LSTM": 1}),
    "last state": (lambda: [L.GRU(4)], {"GRU": 1}),
    "simple": (lambda: [L.SimpleRNN(4, return_sequences=True)], {"RNN": 1}),
    "backwards": (lambda: [L.LSTM(4, return_sequences=True, go_backwards=True)], {"LSTM": 1}),
    "both directions": (lambda: [L.Bidirectional(L.GRU(4, return_sequences=True))], {"GRU": 2}),
    "both directions, last state": (lambda: [L.Bidirectional(L.LSTM(4))], {"LSTM": 2}),
    "stacked": (lambda: [L.LSTM(4, return_sequences=True), L.LSTM(3)], {"LSTM": 2}),
    "zeros where masked": (lambda: [L.RNN(L.LSTMCell(4), return_sequences=True, zero_output_for_mask=True)], {"LSTM": 1}),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_layers(name):
    build, expected = MASKED[name]
    model = stack(L.Masking(), *build())
    proto, found = converted(model)
    assert found == expected
    x = batch_with_masks()
    np.testing.assert_allclose(run(proto, x)[0], model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_mask_of_an_embedding():
    model = stack(L.Embedding(20, 5, mask_zero=True), L.GRU(4, return_sequences=True), shape=(None,))
    proto, found = converted(model)
    assert found == {"GRU": 1}
    ids = np.array([[1, 2, 3, 0, 0], [0, 4, 0, 5, 6], [0, 0, 0, 0, 0]], np.float32)
    np.testing.assert_allclose(run(proto, ids)[0], model(ids).numpy(), rtol=1e-5, atol=1e-6)


ACTIVATIONS = {
    "hard_sigmoid": lambda: L.LSTM(4, recurrent_activation="hard_sigmoid"),
    "hard_sigmoid of a GRU": lambda: L.GRU(4, recurrent_activation="hard_sigmoid", reset_after=False),
    "relu": lambda: L.LSTM(4, activation="relu"),
    "elu": lambda: L.SimpleRNN(4, activation="elu"),
    "softsign": lambda: L.GRU(4, activation="softsign"),
    "softplus": lambda: L.SimpleRNN(4, activation="softplus"),
    "linear": lambda: L.SimpleRNN(4, activation=None),
    "without bias": lambda: L.LSTM(4, use_bias=False),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    _, found = converted(stack(ACTIVATIONS[name](), shape=(7, 5)))
    assert "Loop" not in found and sum(found.values()) == 1


BOTH = {
    "sequences": (lambda: L.Bidirectional(L.LSTM(4, return_sequences=True)), {"LSTM": 1}),
    "last state": (lambda: L.Bidirectional(L.GRU(4)), {"GRU": 1}),
    "sum": (lambda: L.Bidirectional(L.SimpleRNN(4, return_sequences=True, activation="relu"), merge_mode="sum"), {"RNN": 1}),
    "different activations": (
        lambda: L.Bidirectional(L.GRU(4), backward_layer=L.GRU(4, activation="relu", go_backwards=True)), {"GRU": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BOTH)
def test_both_directions_are_one_operator(name):
    build, expected = BOTH[name]
    model = stack(build(), shape=(7, 5))
    proto, found = converted(model)
    assert found == expected
    x = np.random.default_rng(0).normal(size=(2, 7, 5)).astype(np.float32)
    np.testing.assert_allclose(run(proto, x)[0], model(x).numpy(), rtol=1e-5, atol=1e-6)


def test_both_directions_of_sequences_with_lengths():
    v1 = tf.compat.v1
    cells = [L.LSTMCell(4), L.LSTMCell(4)]
    for cell in cells:
        cell.build((None, 5))

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 5]), tf.TensorSpec([None], tf.int32)])
    def both(x, length):
        rows, states = v1.nn.bidirectional_dynamic_rnn(*map(_V1Cell, cells), x, sequence_length=length, dtype=tf.float32)
        return {"rows": tf.concat(rows, -1), "states": tf.concat([states[0][0], states[1][1]], -1)}

    proto = onnxbridge.convert(both, "onnx", verify=False).model
    counts = Counter(n.op_type for n in proto.graph.node)
    x, length = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32), np.array([6, 3, 1, 0], np.int32)
    found = dict(zip((o.name for o in proto.graph.output), run(proto, x, length), strict=True))
    for key, value in both(tf.constant(x), tf.constant(length)).items():
        np.testing.assert_allclose(found[key], value.numpy(), rtol=1e-5, atol=1e-6)
    assert counts["LSTM"] == 1 and not counts["Loop"] and not counts["ReverseSequence"]


def test_sequence_lengths_of_dynamic_rnn():
    v1 = tf.compat.v1
    cell = L.LSTMCell(4)
    cell.build((None, 5))

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 5]), tf.TensorSpec([None], tf.int32)])
    def lengths(x, length):
        outputs, state = v1.nn.dynamic_rnn(_V1Cell(cell), x, sequence_length=length, dtype=tf.float32)
        return {"outputs": outputs, "h": state[0], "c": state[1]}

    result = onnxbridge.convert(lengths, "onnx", verify=False)
    counts = Counter(n.op_type for n in result.model.graph.node)
    x = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32)
    length = np.array([6, 3, 1, 0], np.int32)
    expected = lengths(tf.constant(x), tf.constant(length))
    found = dict(zip((o.name for o in result.model.graph.output), run(result.model, x, length), strict=True))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-5, atol=1e-6)
    assert counts["LSTM"] == 1 and not counts["Loop"]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("initial", [False, True])
def test_state_that_is_concatenated(masked, initial):
    """As TensorFlow 1 has it with `state_is_tuple=False`."""
    v1 = tf.compat.v1
    cell = L.LSTMCell(4)
    cell.build((None, 5))

    @tf.function(input_signature=[tf.TensorSpec([4, 6, 5]), tf.TensorSpec([4], tf.int32), tf.TensorSpec([4, 8])])
    def joined(x, length, start):
        more = {"initial_state": start} if initial else {"dtype": tf.float32}
        outputs, state = v1.nn.dynamic_rnn(_JoinedCell(cell), x, sequence_length=length if masked else None, **more)
        return {"outputs": outputs, "state": state}

    counts = _agrees_with_v1(joined)
    assert counts["LSTM"] == 1 and not counts["Loop"]


def test_concatenated_state_of_another_cell():
    """A loop stays one, and computes the same, if its cell is no LSTM or reads its state whole."""
    w = tf.random.normal([5, 4])

    @tf.function(input_signature=[tf.TensorSpec([None, 6, 5]), tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 8])])
    def other(x, length, start):
        states, whole, rows = start, start, tf.TensorArray(tf.float32, 6)
        for i in tf.range(6):
            a, b = tf.split(states, 2, 1)
            rows = rows.write(i, states)
            states = tf.concat([tf.sin(b) + x[:, i] @ w, a * tf.cos(b)], 1)
            whole = tf.concat([whole[:, 3:], whole[:, :3]], 1) + states
        return {"states": states, "whole": whole, "rows": rows.stack()}

    assert _agrees_with_v1(other)["Loop"] == 1


def _agrees_with_v1(function):
    proto = onnxbridge.convert(function, "onnx", verify=False).model
    rng = np.random.default_rng(0)
    x, start = rng.normal(size=(4, 6, 5)).astype(np.float32), rng.normal(size=(4, 8)).astype(np.float32)
    feeds = {"x": x, "length": np.array([6, 3, 1, 0], np.int32), "start": start}
    expected = function(**{k: tf.constant(v) for k, v in feeds.items()})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found = dict(zip((o.name for o in proto.graph.output), session.run(None, feeds), strict=True))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value.numpy(), rtol=1e-5, atol=1e-6)
    return Counter(n.op_type for n in proto.graph.node)


class _JoinedCell:
    """An LSTM cell whose two states are one tensor."""

    state_size, output_size = 8, 4

    def __init__(self, cell):
        self._cell = cell

    def __call__(self, x, state, scope=None):
        c, h = tf.split(state, 2, 1)
        y, (h, c) = self._cell(x, [h, c])
        return y, tf.concat([c, h], 1)

    def zero_state(self, batch_size, dtype):
        return tf.zeros([batch_size, 8], dtype)


class _V1Cell:
    """A Keras cell under the interface of dynamic_rnn."""

    def __init__(self, cell):
        self._cell = cell
        self.state_size, self.output_size = [4, 4], 4

    def __call__(self, x, state, scope=None):
        return self._cell(x, state)

    def zero_state(self, batch_size, dtype):
        return [tf.zeros([batch_size, 4], dtype)] * 2
