"""Recurrent layers and operators of one step, compared with TensorFlow Lite's interpreter."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import onnxbridge
from onnxbridge.errors import ConversionError, LimitError
from tests.frontends.tflite.build import G, Op, T, constant, model
from tests.frontends.tflite.compare import agree, hub_of, kinds, saved

RNG = np.random.default_rng(3)
INPUTS = 3


@pytest.fixture(autouse=True)
def _same_numbers():
    """Numbers that do not depend on the tests before."""
    global RNG
    RNG = np.random.default_rng(3)


def weights(*shape):
    return constant(RNG.uniform(-1, 1, shape).astype(np.float32))


def state(*shape, name=""):
    return T(type="FLOAT32", shape=shape, variable=True, name=name)


def fed(*shape, name="x"):
    return T(RNG.uniform(-2, 2, shape).astype(np.float32), name=name)


def cell(cells=4, outputs=None, *, inputs=INPUTS, cifg=False, peepholes=False, projection_bias=False):
    """The 17 parameters of an LSTM cell."""
    width = outputs or cells
    made = [*(weights(cells, inputs) for _ in range(4)), *(weights(cells, width) for _ in range(4))]
    made += [weights(cells) if peepholes else None for _ in range(3)]
    made += [weights(cells) for _ in range(4)]
    if cifg:
        for i in (0, 4, 8, 11):
            made[i] = None
    return [*made, weights(outputs, cells) if outputs else None, weights(outputs) if projection_bias else None]


CELLS = {
    "plain": ({}, {}),
    "peepholes": ({"peepholes": True}, {}),
    "no input gate": ({"cifg": True}, {}),
    "no input gate, peepholes": ({"cifg": True, "peepholes": True}, {}),
    "projection": ({"outputs": 2}, {}),
    "projection with a bias and clips": ({"outputs": 2, "projection_bias": True}, {"cell_clip": 0.4, "proj_clip": 0.3}),
    "clip of the cell": ({}, {"cell_clip": 0.3}),
    "clip without a projection": ({}, {"proj_clip": 0.05}),
    "relu": ({}, {"fused_activation_function": "RELU"}),
    "relu6": ({}, {"fused_activation_function": "RELU6"}),
}


def norms(cells=4, *, cifg=False):
    return [None if cifg and i == 0 else weights(cells) for i in range(4)]


def file_of(tmp_path, name, inputs, options, values, outputs=1, version=1, feeds=None):
    given = feeds or [inputs[0]]
    made = [T(type="FLOAT32", name=f"y{i}") for i in range(outputs)]
    op = Op(name, inputs, made, options, {"fused_activation_function": "TANH", **values}, version=version)
    return saved(tmp_path, model(G(given, made, [op]))), {t.name: t.value for t in given}


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_a_layer_of_lstm(tmp_path, kind, normalized, time_major):
    parameters, options = CELLS[kind]
    batch, steps = 2, 5
    x = fed(steps, batch, INPUTS) if time_major else fed(batch, steps, INPUTS)
    own = norms(cifg=parameters.get("cifg", False)) if normalized else [None] * 4
    inputs = [x, *cell(**parameters), state(batch, parameters.get("outputs", 4)), state(batch, 4), *own]
    name, values = "UNIDIRECTIONAL_SEQUENCE_LSTM", {**options, "time_major": time_major}
    path, feeds = file_of(tmp_path, name, inputs, OPTIONS[name], values)
    hub = agree(path, feeds)
    fits = "no input" in kind or kind in ("plain", "peepholes", "relu", "clip without a projection")
    assert ("LSTM" in kinds(hub)) == (fits and not normalized)


@pytest.mark.parametrize("merge_outputs", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_a_bidirectional_layer_of_lstm(tmp_path, kind, time_major, merge_outputs):
    path, feeds = _bidirectional_lstm(tmp_path, *CELLS[kind], time_major, merge_outputs)
    agree(path, feeds)


@pytest.mark.parametrize("aux", ["with weights", "of the backward cell"])
@pytest.mark.parametrize("time_major", [False, True])
def test_a_bidirectional_layer_of_lstm_with_an_auxiliary_input(tmp_path, time_major, aux):
    path, feeds = _bidirectional_lstm(tmp_path, {}, {}, time_major, False, aux)
    assert len(feeds) == 2
    agree(path, feeds)


def _bidirectional_lstm(tmp_path, parameters, options, time_major, merge_outputs, aux=""):
    # the kernel addresses states by the size of the merged output: it reads beyond them for other batches than the first
    batch, steps = 1 if merge_outputs and not time_major else 2, 5
    sizes = (steps, batch) if time_major else (batch, steps)
    outputs = parameters.get("outputs", 4)
    second = fed(*sizes, INPUTS if aux == "of the backward cell" else 4, name="aux") if aux else None
    aux_weights = [weights(4, 4) for _ in range(8)]
    inputs = [
        fed(*sizes, INPUTS), *cell(**parameters), *cell(**parameters), state(batch, outputs), state(batch, 4),
        state(batch, outputs), state(batch, 4), second, *(aux_weights if aux == "with weights" else [None] * 8),
    ]  # fmt: skip
    return file_of(
        tmp_path, "BIDIRECTIONAL_SEQUENCE_LSTM", inputs, "BidirectionalSequenceLSTMOptions",
        {**options, "time_major": time_major, "merge_outputs": merge_outputs}, 1 if merge_outputs else 2,
        feeds=[inputs[0], *([second] if aux else [])],
    )  # fmt: skip


@pytest.mark.parametrize("merge_outputs", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("activation", ["TANH", "RELU"])
def test_a_bidirectional_layer_of_rnn(tmp_path, activation, time_major, merge_outputs):
    path, feeds = _bidirectional_rnn(tmp_path, time_major, merge_outputs, fused_activation_function=activation)
    agree(path, feeds)


@pytest.mark.parametrize("aux", ["with weights", "of the backward cell"])
@pytest.mark.parametrize("time_major", [False, True])
def test_a_bidirectional_layer_of_rnn_with_an_auxiliary_input(tmp_path, time_major, aux):
    path, feeds = _bidirectional_rnn(tmp_path, time_major, False, aux)
    if aux == "of the backward cell" and not time_major:  # the kernel reads the input of the forward cell
        with pytest.raises(ConversionError, match="TensorFlow Lite's kernel ignores it"):
            hub_of(path)
        return
    agree(path, feeds)


def _bidirectional_rnn(tmp_path, time_major, merge_outputs, aux="", **options):
    batch, steps = 2, 5
    sizes = (steps, batch) if time_major else (batch, steps)
    second = fed(*sizes, INPUTS, name="aux") if aux else None
    aux_weights = [weights(4, INPUTS), weights(6, INPUTS)] if aux == "with weights" else [None, None]
    inputs = [
        fed(*sizes, INPUTS), weights(4, INPUTS), weights(4, 4), weights(4), state(batch, 4), weights(6, INPUTS), weights(6, 6),
        weights(6), state(batch, 6), second, *aux_weights,
    ]  # fmt: skip
    return file_of(
        tmp_path, "BIDIRECTIONAL_SEQUENCE_RNN", inputs, "BidirectionalSequenceRNNOptions",
        {**options, "time_major": time_major, "merge_outputs": merge_outputs}, 1 if merge_outputs else 2,
        feeds=[inputs[0], *([second] if aux else [])],
    )  # fmt: skip


def _step(tmp_path, name, batch=2, compress=False, **more):
    """A file of one operator of one step, and its states by name."""
    x = fed(batch, INPUTS)
    if name == "RNN":
        states = [state(batch, 4, name="h")]
        inputs, values, options = [x, weights(4, INPUTS), weights(4, 4), weights(4), *states], {}, "RNNOptions"
    elif name.startswith("SVDF"):
        states = [state(batch, 6 * 5, name="memory")]
        bias = None if name.endswith("without a bias") else weights(3)
        inputs, options = [x, weights(6, INPUTS), weights(6, 5), bias, *states], "SVDFOptions"
        values = {"rank": 2, "fused_activation_function": "RELU"}
    elif name == "basic LSTM":
        states = [state(batch, 4, name="h"), state(batch, 4, name="c")]
        inputs, values = [x, states[0], weights(16, INPUTS + 4), weights(16), states[1]], {"kernel_type": "BASIC"}
        options = "LSTMOptions"
    else:
        _, kind, *normalized = name.split(": ")
        parameters, values = CELLS[kind]
        states, options = [state(batch, parameters.get("outputs", 4), name="h"), state(batch, 4, name="c")], "LSTMOptions"
        inputs = [x, *cell(**parameters), *states]
        inputs += norms(cifg=parameters.get("cifg", False)) if normalized else [None] * 4
        values = {**values, "kernel_type": "FULL"}
    operator = "LSTM" if "LSTM" in name else name.split(" ")[0]
    outputs = 4 if name == "basic LSTM" else 1
    inputs = [*map(_compressed, inputs)] if compress else inputs
    path, _ = file_of(tmp_path, operator, inputs, options, {**values, **more}, outputs, 2 if name == "basic LSTM" else 1)
    return path, {s.name: s.sizes for s in states}


STEPS = [
    "RNN", "SVDF", "SVDF without a bias", "basic LSTM", *(f"LSTM: {kind}" for kind in CELLS), "LSTM: plain: normalized",
    "LSTM: projection with a bias and clips: normalized",
]  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_one_step_has_its_states_as_inputs_and_outputs(tmp_path, name):
    path, states = _step(tmp_path, name)
    hub = hub_of(path)
    assert [v.name for v in hub.graph.inputs] == ["x", *states]
    assert [v.name for v in hub.graph.outputs][-len(states) :] == [f"{s}.next" for s in states]
    assert all(v.doc_string.endswith("0.0 at first") for v in hub.graph.inputs[1:])
    feeds = {"x": fed(2, INPUTS).value, **{s: RNG.uniform(-1, 1, sizes).astype(np.float32) for s, sizes in states.items()}}
    agree(path, feeds)


@pytest.mark.parametrize("name", STEPS)
def test_steps_in_a_row_give_what_the_interpreter_gives(tmp_path, name):
    path, states = _step(tmp_path, name)
    found = onnxbridge.convert(path, samples=1) if name in STEPS[:5] else None
    assert found is None or found.report.passed
    session = onnxruntime.InferenceSession((found or onnxbridge.convert(path, verify=False)).model.SerializeToString())
    reference = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    reference.allocate_tensors()
    at = {s: np.zeros(sizes, np.float32) for s, sizes in states.items()}
    names = [o.name for o in session.get_outputs()]
    for _ in range(7):
        x = fed(2, INPUTS).value
        got = dict(zip(names, session.run(None, {"x": x, **at}), strict=True))
        reference.set_tensor(reference.get_input_details()[0]["index"], x)
        reference.invoke()
        np.testing.assert_allclose(got["y0"], reference.get_tensor(reference.get_output_details()[0]["index"]), 1e-5, 1e-5)
        at = {s: got[f"{s}.next"] for s in states}


def test_a_state_of_any_batch(tmp_path):
    x, h, y = fed(1, INPUTS), state(1, 4, name="h"), T(type="FLOAT32", name="y")
    x.dynamic = h.dynamic = (0,)
    made = Op("RNN", [x, weights(4, INPUTS), weights(4, 4), weights(4), h], [y], "RNNOptions")
    path = saved(tmp_path, model(G([x], [y], [made])))
    hub = agree(path, {"x": fed(3, INPUTS).value, "h": fed(3, 4).value})
    assert hub.graph.inputs[1].doc_string.endswith("0.0 at first")
    found = onnxbridge.convert(path)
    assert found.report.passed
    assert onnxbridge.bisect(path, found.model).first is None


def test_two_steps_of_one_state(tmp_path):
    x, h, y0, y1 = fed(2, INPUTS), state(2, 4, name="h"), T(type="FLOAT32", name="y0"), T(type="FLOAT32", name="y1")
    own = [weights(4, INPUTS), weights(4, 4), weights(4)]
    ops = [Op("RNN", [x, *own, h], [y], "RNNOptions", {"fused_activation_function": "TANH"}) for y in (y0, y1)]
    hub = agree(saved(tmp_path, model(G([x], [y0, y1], ops))), {"x": x.value, "h": fed(2, 4).value})
    assert [v.name for v in hub.graph.outputs] == ["y0", "y1", "h.next"]


def test_a_step_beside_a_resource(tmp_path):
    """A file with both kinds of variables: the interpreter gets a file without the resource, and keeps the tensor."""
    x, h, y, z = fed(2, INPUTS), state(2, 4, name="h"), T(type="FLOAT32", shape=(2, 4)), T(type="FLOAT32", name="z", shape=(2, 4))
    handle, total = T(type="RESOURCE", shape=()), T(type="FLOAT32", shape=(2, 4))
    own = [weights(4, INPUTS), weights(4, 4), weights(4)]
    ops = [
        Op("RNN", [x, *own, h], [y], "RNNOptions", {"fused_activation_function": "TANH"}),
        Op("VAR_HANDLE", [], [handle], "VarHandleOptions", {"container": "", "shared_name": "sum"}),
        Op("READ_VARIABLE", [handle], [total], "ReadVariableOptions"),
        Op("ADD", [total, y], [z], "AddOptions"),
        Op("ASSIGN_VARIABLE", [handle, z], [], "AssignVariableOptions"),
    ]
    feeds = {"x": x.value, "h": fed(2, 4).value, "sum": fed(2, 4).value}
    hub = agree(saved(tmp_path, model(G([x], [z], ops))), feeds)
    assert {v.name for v in hub.graph.outputs} == {"z", "h.next", "sum.next"}


def test_a_state_in_a_branch_is_refused(tmp_path):
    x, y = fed(2, INPUTS), T(type="FLOAT32", shape=(2, 4))
    step = Op("RNN", [x, weights(4, INPUTS), weights(4, 4), weights(4), state(2, 4)], [y], "RNNOptions")
    which, outer, result = T(np.array(True), name="which"), fed(2, INPUTS), T(type="FLOAT32", shape=(2, 4), name="result")
    options = {"then_subgraph_index": 1, "else_subgraph_index": 1}
    branch = Op("IF", [which, outer], [result], "IfOptions", options)
    with pytest.raises(ConversionError, match="a state that a branch, a loop or another signature"):
        hub_of(saved(tmp_path, model(G([which, outer], [result], [branch]), G([x], [y], [step]))))


OPTIONS = {
    "LSTM": "LSTMOptions", "RNN": "RNNOptions", "SVDF": "SVDFOptions",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions", "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTMOptions",
    "BIDIRECTIONAL_SEQUENCE_RNN": "BidirectionalSequenceRNNOptions",
}  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 6, 12, 19, 24, 48, 60])
@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_other_inputs_than_the_operator_has_are_refused(tmp_path, name, count, outputs):
    x = fed(2, INPUTS)
    made = [T(type="FLOAT32", name=f"y{i}") for i in range(outputs)]
    y = T(type="FLOAT32", name="y")
    ops = [Op(name, [x, *(state(3, 2) for _ in range(count))], made, OPTIONS[name]), Op("ABS", [x], [y])]
    with pytest.raises(ConversionError) as raised:
        hub_of(saved(tmp_path, model(G([x], [*made, y], ops))))
    assert name in str(raised.value) and raised.value.exit_code == 3


def test_a_state_of_an_enormous_shape_is_refused(tmp_path):
    inputs = [fed(2, 5, INPUTS), weights(4, INPUTS), weights(4, 4), weights(4), state(1 << 30, 1 << 30)]
    path, _ = file_of(tmp_path, "UNIDIRECTIONAL_SEQUENCE_RNN", inputs, "SequenceRNNOptions", {})
    with pytest.raises(LimitError, match="the variable 't4' of shape"):
        hub_of(path)


@pytest.mark.parametrize("missing", [0, 1, 5, 8, 11, 12, 16])
def test_a_cell_without_a_parameter_is_refused(tmp_path, missing):
    parameters = cell(outputs=2, peepholes=True, projection_bias=True)
    parameters[15 if missing == 16 else missing] = None
    inputs = [fed(2, 5, INPUTS), *parameters, state(2, 2), state(2, 4), *([None] * 4)]
    path, _ = file_of(tmp_path, "UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, OPTIONS["UNIDIRECTIONAL_SEQUENCE_LSTM"], {})
    with pytest.raises(ConversionError, match="an LSTM with"):
        hub_of(path)


def _compressed(t):
    """Weights in int8, with one scale."""
    if t is None or not t.constant or len(t.sizes) != 2:
        return t
    scale = np.float32(np.abs(t.value).max() / 127)
    return T(np.round(t.value / scale).astype(np.int8), constant=True, scale=scale)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("name", ["RNN", "SVDF", "LSTM: plain", "LSTM: projection", "LSTM: no input gate"])
def test_one_step_of_dynamic_range(tmp_path, name, asymmetric):
    path, states = _step(tmp_path, name, batch=3, compress=True, asymmetric_quantize_inputs=asymmetric)
    feeds = {"x": fed(3, INPUTS).value, **{s: RNG.uniform(-1, 1, sizes).astype(np.float32) for s, sizes in states.items()}}
    agree(path, feeds)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("kind", ["plain", "projection", "no input gate"])
def test_a_layer_of_lstm_of_dynamic_range(tmp_path, kind, time_major, asymmetric):
    parameters, options = CELLS[kind]
    x = fed(5, 2, INPUTS) if time_major else fed(2, 5, INPUTS)
    inputs = [x, *map(_compressed, cell(**parameters)), state(2, parameters.get("outputs", 4)), state(2, 4), *([None] * 4)]
    values = {**options, "time_major": time_major, "asymmetric_quantize_inputs": asymmetric}
    name = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    path, feeds = file_of(tmp_path, name, inputs, OPTIONS[name], values)
    agree(path, feeds)


@pytest.mark.parametrize("asymmetric", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("name", ["UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_LSTM"])
def test_other_layers_of_dynamic_range(tmp_path, name, time_major, asymmetric):
    x = fed(5, 2, INPUTS) if time_major else fed(2, 5, INPUTS)
    own = [weights(4, INPUTS), weights(4, 4), weights(4), state(2, 4)]
    inputs = [*own, weights(4, INPUTS), weights(4, 4), weights(4), state(2, 4), None, None, None]
    if name == "UNIDIRECTIONAL_SEQUENCE_RNN":
        inputs = own
    elif name == "BIDIRECTIONAL_SEQUENCE_LSTM":
        inputs = [*cell(), *cell(), *(state(2, 4) for _ in range(4)), *([None] * 9)]
    values = {"time_major": time_major, "asymmetric_quantize_inputs": asymmetric}
    outputs = 1 if name == "UNIDIRECTIONAL_SEQUENCE_RNN" else 2
    path, feeds = file_of(tmp_path, name, [x, *map(_compressed, inputs)], OPTIONS[name], values, outputs)
    if name == "BIDIRECTIONAL_SEQUENCE_RNN" and time_major:  # the kernel goes on from its state, once for each step
        with pytest.raises(ConversionError, match="runs over the sequence once for each of its steps"):
            hub_of(path)
        return
    agree(path, feeds)


def _integers(shape, kind, scale, *, limit=127, zero_point=0, **more):
    dtype = {"INT8": np.int8, "INT16": np.int16, "INT32": np.int32}[kind]
    return T(RNG.integers(-limit, limit + 1, shape).astype(dtype), scale=scale, zero_point=zero_point, **more)


def test_an_svdf_of_integers(tmp_path):
    x = _integers((2, INPUTS), "INT8", 0.02, zero_point=3, name="x")
    memory = T(type="INT16", shape=(2, 6 * 5), scale=0.001, variable=True, name="memory")
    feature, time = (_integers(s, k, 0.01, constant=True) for s, k in (((6, INPUTS), "INT8"), ((6, 5), "INT16")))
    y = T(type="INT8", name="y", scale=0.01, zero_point=-128)
    bias = _integers((3,), "INT32", 0.001 * 0.01, limit=9999, constant=True)
    made = Op("SVDF", [x, feature, time, bias, memory], [y], "SVDFOptions", {"rank": 2, "fused_activation_function": "RELU"})
    feeds = {"x": x.value, "memory": RNG.integers(-999, 999, (2, 30)).astype(np.int16)}
    hub = agree(saved(tmp_path, model(G([x], [y], [made]))), feeds, steps=1)
    assert [v.dtype.name for v in hub.graph.inputs] == [v.dtype.name for v in hub.graph.outputs] == ["INT8", "INT16"]


@pytest.mark.parametrize("name", ["LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"])
def test_an_lstm_of_integers(tmp_path, name):
    """The kernels round gates to 16 bits, and the output of each step to 8."""
    x = _integers((2, INPUTS) if name == "LSTM" else (4, 2, INPUTS), "INT8", 0.02, zero_point=3, name="x")
    h = T(type="INT8", shape=(2, 4), scale=1 / 128, zero_point=2, variable=True, name="h")
    c = T(type="INT16", shape=(2, 4), scale=2**-12, variable=True, name="c")
    own = [_integers((4, INPUTS), "INT8", 0.008, constant=True) for _ in range(4)]
    own += [_integers((4, 4), "INT8", 0.008, constant=True) for _ in range(4)]
    own += [None, None, None, *(_integers((4,), "INT32", 0.02 * 0.008, limit=3000, constant=True) for _ in range(4))]
    y = T(type="INT8", name="y", scale=1 / 128, zero_point=2)
    between = [T(type="INT16", shape=(), scale=2**-12) for _ in range(4)]
    between.append(T(type="INT8", shape=(), scale=1 / 128, zero_point=2))
    values = {"fused_activation_function": "TANH"} | ({"time_major": True} if name != "LSTM" else {"kernel_type": "FULL"})
    made = Op(name, [x, *own, None, None, h, c, *([None] * 4)], [y], OPTIONS[name], values, intermediates=between)
    feeds = {"x": x.value}
    if name == "LSTM":
        feeds |= {"h": _integers((2, 4), "INT8", 1).value, "c": RNG.integers(-4096, 4096, (2, 4)).astype(np.int16)}
    path = saved(tmp_path, model(G([x], [y], [made])))
    hub = agree(path, feeds, steps=8 if name == "LSTM" else 1)  # eight steps of the cell state, which has 16 bits
    assert [v.doc_string.rpartition("; ")[2] for v in hub.graph.inputs[1:]] == ["2 at first", "0 at first"][: len(feeds) - 1]
    assert onnxbridge.convert(path).report.passed
    reference = Interpreter(str(path))
    reference.allocate_tensors()
    first = {d["name"]: reference.get_tensor(d["index"]) for d in reference.get_tensor_details() if d["name"] in ("h", "c")}
    assert (first["h"] == 2).all() and not first["c"].any()
