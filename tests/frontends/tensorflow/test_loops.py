"""TensorFlow loops: recurrent layers become ONNX operators, and lists filled by counted loops become scan outputs."""

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge

tf = pytest.importorskip("tensorflow")
K, L = tf.keras, tf.keras.layers
SPEC = [tf.TensorSpec([None, 4], tf.float32)]


def operators(source):
    """The operators of a verified conversion, including those inside loops."""
    model = onnxbridge.convert(source).model
    return Counter(node.op_type for node in ir.from_proto(model).graph.all_nodes())


def layers(*stack, steps=None):
    x = i = K.Input((steps, 7))
    for layer in stack:
        x = layer(x)
    return K.Model(i, x)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: layers(L.LSTM(6, return_sequences=True), L.LSTM(5), L.Dense(3)), {"LSTM": 2}),
        (lambda: layers(L.GRU(6, return_sequences=True, use_bias=False), L.GRU(5, reset_after=False), steps=9), {"GRU": 2}),
        (lambda: layers(L.Bidirectional(L.SimpleRNN(6)), L.Reshape((4, 3)), L.SimpleRNN(4, activation="relu")), {"RNN": 2}),
        (lambda: layers(L.GRU(4, activation="elu", return_sequences=True), L.LSTM(4, activation="relu")), {"GRU": 1, "LSTM": 1}),
        (lambda: layers(L.GRU(4, activation="swish", return_sequences=True), L.LSTM(4, activation="gelu")), {"Loop": 2}),
        (lambda: layers(L.RNN([L.LSTMCell(4), L.GRUCell(3)], return_sequences=True)), {"Loop": 1}),
    ],
)
def test_recurrent_layers(build, expected):
    K.utils.set_random_seed(0)
    found = operators(build())
    assert {op: n for op, n in found.items() if op in ("LSTM", "GRU", "RNN", "Loop", "ScatterND")} == expected


def test_initial_and_final_states():
    i, h, c = K.Input((None, 7)), K.Input((4,)), K.Input((4,))
    model = K.Model([i, h, c], L.LSTM(4, return_sequences=True, return_state=True)(i, initial_state=[h, c]))
    assert operators(model)["LSTM"] == 1


def test_a_shared_layer_keeps_the_names_of_its_weights():
    layer = L.LSTM(7, return_sequences=True, name="again")
    model = onnxbridge.convert(layers(layer, layer)).model
    names = [t.name for t in model.graph.initializer if len(t.dims) == 3]
    assert len(names) == len(set(names)) and any(n == "again/lstm_cell/kernel" for n in names), names


def _fill_list(x, start=0, stop=0, at=lambda i, n: i, read=None):
    n = tf.shape(x)[0]
    rows = tf.TensorArray(tf.float32, size=n, element_shape=[4], clear_after_read=False)

    def loop_body(i, total, rows):
        total = total * 0.9 + x[i]
        row = total * 2 if read is None else total + rows.write(0, x[0]).read(read(i))
        return i + 1, total, rows.write(at(i, n), row)

    i, total, rows = tf.while_loop(lambda i, *_: i < (n - stop if stop else n), loop_body, (start, tf.zeros([4]), rows))
    return rows.stack(), total, i


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {"Loop": 1}),
        ({"start": 1}, {"Loop": 1, "ScatterND": 1}),  # the first row is never written
        ({"stop": 1}, {"Loop": 1, "ScatterND": 1}),
        ({"at": lambda i, n: n - 1 - i}, {"Loop": 1, "ScatterND": 1}),
        ({"read": lambda i: tf.zeros_like(i)}, {"Loop": 1, "ScatterND": 2}),
    ],
)
def test_lists_filled_by_a_loop(arguments, expected):
    function = tf.function(lambda x: _fill_list(x, **arguments), input_signature=SPEC)
    found = operators(function)
    assert {op: n for op, n in found.items() if op in ("Loop", "ScatterND")} == expected


def test_a_loop_of_at_least_one_iteration_has_no_trip_count():
    def counted(x):
        proceed, n = tf.constant(True), tf.shape(x)[0] - 5  # zero or negative at the sizes that are tried

        def loop_body(proceed, i, s):
            return i + 1 < n, i + 1, s + x[0]

        return tf.while_loop(lambda proceed, i, s: proceed, loop_body, (proceed, 0, tf.zeros([4])))[1:]

    torch = pytest.importorskip("torch")
    iterations, total = onnxbridge.convert(tf.function(counted, input_signature=SPEC), to="pytorch").model(torch.ones(3, 4))
    assert int(iterations) == 1 and total.tolist() == [1.0] * 4


def test_maximum_iterations_is_the_trip_count():
    def bounded(x):
        return tf.while_loop(
            lambda i, s: tf.reduce_sum(s) < 3.0, lambda i, s: (i + 1, s + tf.abs(x[0]) + 0.1), (0, tf.zeros([4])),
            maximum_iterations=6,
        )  # fmt: skip

    model = onnxbridge.convert(tf.function(bounded, input_signature=SPEC)).model
    (loop,) = (n for n in model.graph.node if n.op_type == "Loop")
    assert loop.input[0]


@pytest.mark.slow
def test_a_recurrent_model_is_exported_from_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    source = layers(L.Bidirectional(L.LSTM(5, return_sequences=True)), L.GRU(4, activation="elu"), L.Dense(2))
    conversion = onnxbridge.convert(source, to="pytorch")
    assert sum(isinstance(m, torch.nn.LSTM) and m.bidirectional for m in conversion.model.modules()) == 1
    conversion.save(tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2").module()
    for shape in ((2, 5, 7), (1, 11, 7)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(program(torch.from_numpy(x)).detach().numpy(), source(x).numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("peephole", [False, True])
def test_a_fused_layer_of_tensorflow_1_is_an_lstm(peephole):
    rng = np.random.default_rng(0)
    w, b, p = (tf.constant(rng.standard_normal(s).astype(np.float32)) for s in ((11, 28), (28,), (7,)))

    def layer(x):
        zero, steps = tf.zeros([tf.shape(x)[1], 7]), tf.cast(tf.shape(x)[0], tf.int64)
        states = {"cs_prev": zero, "h_prev": zero, "wci": p, "wcf": -p, "wco": p * 2}
        return tf.raw_ops.BlockLSTM(seq_len_max=steps, x=x, w=w, b=b, cell_clip=-1, use_peephole=peephole, **states).h

    found = operators(tf.function(layer, input_signature=[tf.TensorSpec([None, None, 4], tf.float32)]))
    assert found["LSTM"] == 1 and not found["Loop"]
