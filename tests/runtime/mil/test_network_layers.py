"""Rules for every layer of NeuralNetwork.proto; layers that current converters do not write are compared with NumPy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.formats.coreml.mil_constants import ConstantReader
from onnxbridge.formats.coreml.neural_network import weights
from onnxbridge.formats.coreml.neural_network.ops import rule
from onnxbridge.runtime.mil import Interpreter
from tests.runtime.mil.build import assert_hub_matches, ct

from coremltools.models import datatypes  # isort: skip
from coremltools.models.neural_network import NeuralNetworkBuilder  # isort: skip

proto = ct.proto.NeuralNetwork_pb2
KINDS = {f.name: f.message_type for f in proto.NeuralNetworkLayer.DESCRIPTOR.oneofs_by_name["layer"].fields}
rng = np.random.default_rng(2)


def test_every_layer_type_has_a_rule():
    """`custom` layers are registered by their class names instead."""
    assert set(KINDS) - set(rule) == {"custom"}
    assert {op for op in rule if not op.startswith("custom.")} <= set(KINDS)


# The condition network of a loop is passed as conditionVar, the blob that it computes.
RENAMED = {"loop": {"conditionNetwork"}}
# Parameters of rules that are not fields: max and min share a rule with add, and may_exit is computed from the loop's body.
ADDITIONAL = {"conditionVar", "alpha", "may_exit", "outputs"}


@pytest.mark.parametrize("kind", sorted(set(KINDS) & set(rule)))
def test_rule_parameters_match_the_specification(kind):
    if not rule[kind].accepts_any_attribute:
        have = {p.name.rstrip("_") for p in rule[kind].params if p.keyword}
        fields = {f.name for f in KINDS[kind].fields}
        assert fields - have == RENAMED.get(kind, set())
        assert have - fields <= ADDITIONAL


def computed(add, outputs=1, exact=False, **inputs):
    """Run a network written by add(builder) with the interpreter, and check that ONNX Runtime gives the same."""
    features = [(name, datatypes.Array(*v.shape)) for name, v in inputs.items()]
    names = [f"y{i}" if i else "y" for i in range(outputs)]
    builder = NeuralNetworkBuilder(features, [(n, None) for n in names], disable_rank5_shape_mapping=exact)
    add(builder)
    found = Interpreter(builder.spec).run(inputs)
    assert_hub_matches(builder.spec, inputs, found)
    return found["y"]


def draw(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def test_crop_to_the_size_of_another_blob():
    x, like = draw(2, 7, 9), draw(1, 3, 4)
    got = computed(lambda b: b.add_crop("c", 0, 0, 0, 0, [2, 3], ["x", "like"], "y"), x=x, like=like)
    np.testing.assert_array_equal(got.reshape(2, 3, 4), x[:, 2:5, 3:7])


@pytest.mark.parametrize("end", [5, -2, 100])
@pytest.mark.parametrize("axis", ["channel", "height", "width"])
def test_slice_is_clamped(axis, end):
    x, place = draw(6, 7, 9), ("channel", "height", "width").index(axis)
    got = computed(lambda b: b.add_slice("s", "x", "y", axis, 1, end, 2), x=x)
    np.testing.assert_array_equal(got.reshape(got.shape[-3:]), np.take(x, np.arange(x.shape[place])[1:end:2], place))


def test_split_into_different_sizes():
    x = draw(3, 8)
    got = computed(lambda b: b.add_split_nd("s", "x", ["y", "y1", "y2"], 1, 3), outputs=3, exact=True, x=x)
    np.testing.assert_array_equal(got, x[:, :3])


def test_pad_to_a_given_size():
    x = draw(4, 3)
    pads = [6, 0, 0, 5]
    got = computed(lambda b: b.add_constant_pad("p", ["x"], "y", 2.0, True, pads), exact=True, x=x)
    np.testing.assert_array_equal(got, np.pad(x, [(2, 0), (0, 2)], constant_values=2))


def test_pad_to_a_dynamic_size():
    x, sizes = draw(4, 3), np.float32([6, 0, 0, 5])
    got = computed(lambda b: b.add_constant_pad("p", ["x", "sizes"], "y", 2.0, True), exact=True, x=x, sizes=sizes)
    np.testing.assert_array_equal(got, np.pad(x, [(2, 0), (0, 2)], constant_values=2))


def test_dynamic_counts():
    x, k = draw(4, 6), np.float32([2])

    def add(builder):
        layer = builder.spec.neuralNetwork.layers.add(name="t", input=["x", "k"], output=["y", "i"])
        layer.topK.axis = 1

    np.testing.assert_array_equal(computed(add, exact=True, x=x, k=k), -np.sort(-x, 1)[:, :2])


def test_convolution_with_weights_from_a_blob():
    x, w = draw(1, 3, 6, 5), draw(4, 3, 2, 3)

    def add(builder):
        builder.add_convolution("c", 3, 4, 2, 3, 1, 1, "valid", 1, None, None, False, input_name=["x", "w"], output_name="y")

    got = computed(add, exact=True, x=x, w=w)
    np.testing.assert_allclose(got, F.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy(), rtol=1e-4, atol=1e-5)


def lstm(x, state, w, r, b, couple, clip):
    """One direction in NumPy; the gates are stacked as input, forget, output, cell."""
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    h, c = state
    for row in x:
        i, f, o, g = np.split(w @ row + r @ h + b, 4)
        i = sigmoid(i)
        c = np.clip((1 - i if couple else sigmoid(f)) * c + i * np.tanh(g), -clip, clip)
        h = sigmoid(o) * np.tanh(c)
    return h


@pytest.mark.parametrize("couple", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_lstm_with_forget_bias_coupled_gates_and_clip(couple, biased):
    x, w, r, b = draw(5, 3), draw(8, 3), draw(8, 2), draw(8) * biased

    def add(builder):
        parts = lambda v: list(np.split(v, 4))  # noqa: E731
        builder.add_unilstm(
            "l", parts(r), parts(w), parts(b) if biased else None, 2, 3, ["x"], ["y"], coupled_input_forget_gate=couple,
            forget_bias=not couple, cell_clip_threshold=0.5,
        )  # fmt: skip

    got = computed(add, exact=True, x=x.reshape(5, 1, 3, 1, 1))
    bias = b + (0 if couple else np.repeat([0, 1, 0, 0], 2))
    np.testing.assert_allclose(got.ravel(), lstm(x, (np.zeros(2), np.zeros(2)), w, r, bias, couple, 0.5), rtol=1e-4, atol=1e-5)


def quantized(values, bits, **params):
    stored = proto.WeightParams()
    stored.quantization.numberOfBits = bits
    places = (values.reshape(-1, 1).astype(np.uint8) >> np.arange(bits)[::-1].astype(np.uint8)) & 1
    stored.rawValue = np.packbits(places.astype(np.uint8)).tobytes()
    for name, value in params.items():
        target = stored.quantization.lookupTableQuantization if name == "floatValue" else stored.quantization.linearQuantization
        getattr(target, name).extend(value)
    return stored


@pytest.mark.parametrize("bits", range(1, 9))
def test_quantized_weights_of_1_to_8_bits(bits):
    quantized_, table = rng.integers(0, 1 << bits, (3, 5)), draw(1 << bits)
    linear = quantized(quantized_, bits, scale=[0.5, 2, 3], bias=[1, 0, -1])
    want = quantized_ * np.float32([0.5, 2, 3])[:, None] + np.float32([1, 0, -1])[:, None]
    np.testing.assert_allclose(weights.read(linear, (3, 5)), want, rtol=1e-6)
    looked = quantized(quantized_, bits, floatValue=table)
    np.testing.assert_array_equal(weights.read(looked, (3, 5)), table[quantized_])
    with pytest.raises(UnsafeFileError, match="expected 64"):
        weights.read(linear, (8, 8))
    with pytest.raises(UnsafeFileError, match="into a lookup table"):
        weights.read(quantized(np.full((3, 5), (1 << bits) - 1), bits, floatValue=table[:-1]), (3, 5))


def test_float16_and_int8_weights():
    stored, values = proto.WeightParams(), draw(4, 2)
    stored.float16Value = values.astype(np.float16).tobytes()
    np.testing.assert_array_equal(weights.read(stored, (4, 2)), values.astype(np.float16).astype(np.float32))
    quantized_ = rng.integers(-127, 128, (4, 6)).astype(np.int8)
    x = draw(2, 6)

    def add(builder):
        layer = builder.spec.neuralNetwork.layers.add(name="i", input=["x"], output=["y"]).innerProduct
        layer.inputChannels, layer.outputChannels, layer.int8DynamicQuantize = 6, 4, True
        layer.weights.int8RawValue = quantized_.tobytes()
        layer.weights.quantization.numberOfBits = 8
        layer.weights.quantization.linearQuantization.scale.append(0.25)

    w = (quantized_ * 0.25).T  # exact
    bound = 6 * 2.0**-24 * (np.abs(x) @ np.abs(w))  # unit roundoff x terms of the sum
    assert (np.abs(computed(add, exact=True, x=x) - x.astype(np.float64) @ w) <= bound).all()


def test_embeddings_of_quantized_weights():
    quantized_ = rng.integers(0, 16, (3, 8))  # channels first

    def add(builder):
        layer = builder.spec.neuralNetwork.layers.add(name="e", input=["x"], output=["y"]).embeddingND
        layer.vocabSize, layer.embeddingSize = 8, 3
        layer.weights.CopyFrom(quantized(quantized_, 4, scale=[0.5, 1, 2], bias=[0, 1, 2]))

    got = computed(add, exact=True, x=np.float32([[5], [0], [7]]))
    want = quantized_ * np.float32([0.5, 1, 2])[:, None] + np.float32([0, 1, 2])[:, None]
    np.testing.assert_allclose(got, want.T[[5, 0, 7]], rtol=1e-6)


def lstm_steps(x, h, c, w, r, b, inner, cell, outer):
    """The outputs of an LSTM at each step, and its last cell; Core ML's builder stacks input, forget, output, cell."""
    shown = []
    for step in x:
        i, f, o, new = np.split(w @ step + r @ h + b, 4)
        c = inner(f) * c + inner(i) * cell(new)
        h = inner(o) * outer(c)
        shown.append(h)
    return np.stack(shown), c


@pytest.mark.parametrize("whole", [False, True])
def test_bidirectional_lstm_with_different_activations(whole):
    x, h, c, h_back, c_back = draw(5, 1, 3, 1, 1), *(draw(1, 1, 2, 1, 1) for _ in range(4))
    (w, w_back), (r, r_back), (b, b_back) = draw(2, 8, 3), draw(2, 8, 2), draw(2, 8)
    features = {"x": x, "h": h, "c": c, "h_back": h_back, "c_back": c_back}
    names = ["y", "h1", "c1", "h2", "c2"]
    builder = NeuralNetworkBuilder(
        [(k, datatypes.Array(*v.shape)) for k, v in features.items()], [(n, None) for n in names],
        disable_rank5_shape_mapping=True,
    )  # fmt: skip
    gates = [[np.split(v, 4) for v in side] for side in ((r, w, b), (r_back, w_back, b_back))]
    builder.add_bidirlstm("l", *gates[0], *gates[1], 2, 3, list(features), names, output_all=whole)
    for activation in builder.spec.neuralNetwork.layers[0].biDirectionalLSTM.activationsBackwardLSTM[1:]:
        activation.ReLU.SetInParent()
    found = Interpreter(builder.spec).run(features)
    assert_hub_matches(builder.spec, features, found)
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    relu = lambda v: np.maximum(v, 0)  # noqa: E731
    quantized_, first = x[:, 0, :, 0, 0], [v.ravel() for v in (h, c, h_back, c_back)]
    there, end = lstm_steps(quantized_, *first[:2], w, r, b, sigmoid, np.tanh, np.tanh)
    back, end_back = lstm_steps(quantized_[::-1], *first[2:], w_back, r_back, b_back, sigmoid, relu, relu)
    want = np.concatenate([there, back[::-1]], 1) if whole else np.concatenate([there[-1:], back[-1:]], 1)
    np.testing.assert_allclose(found["y"][:, 0, :, 0, 0], want, rtol=1e-4, atol=1e-5)
    for name, value in zip(names[1:], (there[-1], end, back[-1], end_back), strict=True):
        np.testing.assert_allclose(found[name].ravel(), value, rtol=1e-4, atol=1e-5)


def test_split_with_wrong_number_of_outputs_raises():
    builder = NeuralNetworkBuilder([("x", datatypes.Array(4, 2))], [("a", None), ("b", None)], disable_rank5_shape_mapping=True)
    builder.add_split_nd("s", "x", ["a", "b"], axis=0, num_splits=2)
    builder.spec.neuralNetwork.layers[0].splitND.numSplits = 1 << 40
    with pytest.raises(UnsafeFileError, match="2 outputs, but 1099511627776 parts"):
        Interpreter(builder.spec)


def test_categorical_distribution():
    builder = NeuralNetworkBuilder([("x", datatypes.Array(1, 3))], [("y", None)], disable_rank5_shape_mapping=True)
    builder.add_categorical_distribution("c", "x", "y", 20000, is_logits=False, seed=3)
    drawn = Interpreter(builder.spec).run({"x": np.float32([[0.2, 0.5, 0.3]])})["y"]
    assert drawn.shape == (1, 20000)
    np.testing.assert_allclose(np.bincount(drawn.astype(int).ravel(), minlength=3) / 20000, [0.2, 0.5, 0.3], atol=0.02)


SCALARS = {
    "reduce": lambda b: b.add_reduce_sum("r", "x", "y", axes=[0], keepdims=False),
    "reduce_all": lambda b: b.add_reduce_max("r", "x", "y", reduce_all=True, keepdims=False),
    "argmax": lambda b: b.add_argmax("r", "x", "y", axis=0, keepdims=False),
    "gather_nd": lambda b: (b.add_load_constant_nd("i", "i", np.float32([2]), [1]), b.add_gather_nd("r", ["x", "i"], "y")),
    "slice": lambda b: b.add_slice_static("r", "x", "y", [1], [2], [1], [False], [False], squeeze_masks=[True]),
}


@pytest.mark.parametrize(("case", "want"), [("reduce", 6), ("reduce_all", 5), ("argmax", 1), ("gather_nd", 3), ("slice", 5)])
def test_no_blob_has_rank_0(case, want):
    found = computed(SCALARS[case], exact=True, x=np.float32([-2, 5, 3]))
    assert found.tolist() == [want]


def test_squeeze_keeps_rank_1():
    assert computed(lambda b: b.add_squeeze("r", "x", "y", squeeze_all=True), exact=True, x=np.float32([[7]])).tolist() == [7]


@pytest.mark.parametrize(("first", "second", "shape"), [
    ((3,), (3,), (1, 1)), ((4, 3), (3,), (4, 1)), ((3,), (3, 2), (1, 2)), ((3,), (5, 3, 2), (5, 1, 2)),
])  # fmt: skip
def test_matmul_of_vectors(first, second, shape):
    a, b = draw(*first), draw(*second)
    features = [("a", datatypes.Array(*first)), ("b", datatypes.Array(*second))]
    builder = NeuralNetworkBuilder(features, [("y", None)], disable_rank5_shape_mapping=True)
    builder.add_batched_mat_mul("m", ["a", "b"], "y")
    found = Interpreter(builder.spec).run({"a": a, "b": b})
    assert_hub_matches(builder.spec, {"a": a, "b": b}, found)
    assert found["y"].shape == shape
    np.testing.assert_allclose(found["y"], np.matmul(a, b).reshape(shape), rtol=1e-4, atol=1e-5)


def test_cumsum_along_a_dynamic_axis():
    features = [("x", datatypes.Array(3, 4)), ("axis", datatypes.Array(1))]
    builder = NeuralNetworkBuilder(features, [("y", None)], disable_rank5_shape_mapping=True)
    builder.add_cumsum("c", ["x", "axis"], "y")
    x = draw(3, 4)
    found = Interpreter(builder.spec).run({"x": x, "axis": np.float32([1])})["y"]
    np.testing.assert_allclose(found, np.cumsum(x, 1), rtol=1e-5)


def test_size_of_an_empty_constant_is_limited():
    value = ct.proto.MIL_pb2.Value()
    value.type.tensorType.dataType = ct.proto.MIL_pb2.DataType.Value("FLOAT32")
    value.type.tensorType.dimensions.add().constant.size = 1 << 45
    value.immediateValue.tensor.SetInParent()
    with pytest.raises(LimitError, match="the limit"):
        ConstantReader("").read(value)
