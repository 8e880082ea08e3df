"""Which weights become parameters of a module: those that the source trains, or that the graph uses as weights."""

from __future__ import annotations

import importlib.util

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import onnxbridge


def module_of(source, emit, folder, **options):
    """The module from the conversion, or from the Python file that it writes."""
    made = onnxbridge.convert(source, to="pytorch", emit=emit, **options)
    if emit == "program":
        return made.model
    path = made.save(folder / "net.py")[0]
    spec = importlib.util.spec_from_file_location("net", path)
    net = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(net)
    return net.load()


def check_training(module, inputs, target, steps=20):
    """Train the module, and check that every parameter gets a gradient."""
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(*inputs), target)
        loss.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in module.parameters())
        optimizer.step()
        losses.append(float(loss.detach()))
    assert np.isfinite(losses).all() and losses[-1] < 0.7 * losses[0]


@pytest.fixture(scope="module")
def attention_model():
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    ids = keras.Input((6,), dtype="int32", name="ids")
    x = layers.Embedding(20, 8)(ids)
    x = layers.LayerNormalization(name="ln_1")(x + layers.MultiHeadAttention(2, 4)(x, x))
    x = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(x)
    x = layers.BatchNormalization()(layers.Dropout(0.1)(x))
    return keras.Model(ids, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))


@pytest.mark.parametrize("emit", ["program", "source"])
def test_trainable_keras_variables_are_parameters_that_train(emit, attention_model, tmp_path):
    module = module_of(attention_model, emit, tmp_path)
    # torch.nn.LSTM has two biases, Keras has one
    second = {name for name, _ in module.named_parameters() if "bias_hh" in name}
    count = sum(p.numel() for name, p in module.named_parameters() if name not in second)
    assert count == sum(int(np.prod(v.shape)) for v in attention_model.trainable_variables)
    assert not [name for name, p in module.named_parameters() if p.ndim == 0]
    buffers = {tuple(b.shape) for b in module.buffers() if b.ndim}
    assert buffers == {tuple(v.shape) for v in attention_model.non_trainable_variables if "moving" in v.path}
    torch.manual_seed(0)
    check_training(module, (torch.randint(0, 20, (16, 6), dtype=torch.int32),), torch.randn(16, 1))


def test_non_trainable_tensorflow_variables_are_buffers():
    import tensorflow as tf

    class Scaled(tf.Module):
        def __init__(self):
            super().__init__()
            self.gain = tf.Variable(1.5, name="gain")
            self.offset = tf.Variable([0.5, 0.25, 0.125], name="offset", trainable=False)
            self.kernel = tf.Variable(np.eye(3, dtype=np.float32), name="kernel")
            self.table = tf.constant(np.arange(60, dtype=np.float32).reshape(20, 3))

        @tf.function(input_signature=[tf.TensorSpec([2, 3], tf.float32, "x")])
        def __call__(self, x):
            return (x @ self.kernel + self.offset + tf.gather(self.table, [1, 2])) * self.gain

    net = Scaled()
    module = onnxbridge.convert(net.__call__.get_concrete_function(), to="pytorch").model
    assert sorted(p.numel() for p in module.parameters()) == [1, 9]


def initializer(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def third_party_model(with_metadata=False):
    """A file by another exporter, with names for all constants: a convolution, and decomposed normalization and attention."""
    rng = np.random.default_rng(0)

    def random(*shape):
        return rng.standard_normal(shape) * 0.3

    values_ = {
        "conv.weight": random(4, 1, 1, 1), "conv.bias": random(4), "slope": [0.25], "ln.eps": 1e-5, "two": 2.0,
        "ln.weight": np.ones(4), "ln.bias": np.zeros(4), "scale": [0.5], "mask": np.triu(np.full((4, 4), -1e9), 1),
        "tril": np.tril(np.ones((4, 4))), "wq": random(4, 4), "head": random(4, 1), "head.bias": [0.1], "low": -9.0, "half": 0.5,
        "/Constant_output_0": random(4, 4), "gain": 1.25,
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "conv.weight", "conv.bias"], ["c"]), node("PRelu", ["c", "slope"], ["r"]),
        node("ReduceMean", ["r"], ["h"], axes=[2], keepdims=0), node("ReduceMean", ["h"], ["m"], axes=[-1]),
        node("Sub", ["h", "m"], ["d"]), node("Pow", ["d", "two"], ["p"]), node("ReduceMean", ["p"], ["v"], axes=[-1]),
        node("Add", ["v", "ln.eps"], ["e"]), node("Sqrt", ["e"], ["s"]), node("Div", ["d", "s"], ["n"]),
        node("Mul", ["n", "ln.weight"], ["nw"]), node("Add", ["nw", "ln.bias"], ["y"]), node("MatMul", ["y", "wq"], ["q"]),
        node("Transpose", ["q"], ["k"], perm=[0, 2, 1]), node("MatMul", ["q", "k"], ["a"]), node("Mul", ["a", "scale"], ["as"]),
        node("Add", ["as", "mask"], ["am"]), node("Softmax", ["am"], ["w"], axis=-1), node("Mul", ["w", "tril"], ["wt"]),
        node("MatMul", ["wt", "q"], ["o"]), node("Add", ["o", "/Constant_output_0"], ["oc"]), node("Max", ["oc", "low"], ["ol"]),
        node("Mul", ["ol", "gain"], ["og"]), node("MatMul", ["og", "head"], ["z"]), node("Add", ["z", "head.bias"], ["zb"]),
        node("Mul", ["zb", "half"], ["out"]),
    ]  # fmt: skip
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [tensor("x", TensorProto.FLOAT, [2, 1, 3, 4])], [tensor("out", TensorProto.FLOAT, [2, 4, 1])],
        [initializer(n, a) for n, a in values_.items()],
    )  # fmt: skip
    if with_metadata:  # as torch.onnx writes it
        for name, array in values_.items():
            value = tensor(name, TensorProto.FLOAT, np.shape(array))
            kind = {"gain": "PARAMETER", "ln.bias": "BUFFER"}.get(name, "PARAMETER" if np.size(array) > 1 else "CONSTANT_TENSOR")
            kind = "BUFFER" if name in ("mask", "tril") else kind
            value.metadata_props.add(key="pkg.torch.export.graph_signature.InputSpec.kind", value=kind)
            graph.value_info.append(value)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("emit", ["program", "source"])
def test_scalars_masks_and_constants_of_a_third_party_model_are_not_trained(emit, tmp_path):
    module = module_of(third_party_model(), emit, tmp_path)
    # conv, slope, norm, wq, head and its bias
    assert sum(p.numel() for p in module.parameters()) == 4 + 4 + 1 + 4 + 4 + 16 + 4 + 1
    torch.manual_seed(0)
    check_training(module, (torch.randn(2, 1, 3, 4),), torch.randn(2, 4, 1))


def test_torch_onnx_metadata_decides_parameters_and_buffers():
    module = onnxbridge.convert(third_party_model(with_metadata=True), to="pytorch").model
    values = [p.detach().numpy() for p in module.parameters()]
    assert any(v.size == 1 and v.item() == 1.25 for v in values)  # a scalar that is a parameter
    assert not any(v.size == 4 and not v.any() for v in values)  # a bias that is a buffer
    assert any(b.numel() == 4 and not b.any() for b in module.buffers())


class Gained(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.act = nn.Linear(3, 3), nn.PReLU()
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("shift", torch.tensor(0.5))
        self.register_buffer("position", torch.randn(3))

    def forward(self, x):
        return self.act(self.linear(x + self.position)) * self.gain + self.shift


@pytest.mark.parametrize("through_file", [False, True], ids=["live", "onnx file"])
@pytest.mark.parametrize("to", ["pytorch", "tensorflow"])
def test_pytorch_parameters_and_buffers_round_trip(to, through_file, tmp_path):
    net, x = Gained().eval(), torch.randn(2, 3)
    if through_file:
        onnx.save(onnxbridge.convert(net, inputs=(x,)).model, tmp_path / "net.onnx")
        made = onnxbridge.convert(tmp_path / "net.onnx", to=to)
    else:
        made = onnxbridge.convert(net, to=to, inputs=(x,))
    if to == "pytorch":
        assert sorted(tuple(p.shape) for p in made.model.parameters()) == sorted(tuple(p.shape) for p in net.parameters())
        assert sorted(made.model.state_dict()) == sorted(net.state_dict())
    else:
        found = sorted(int(np.prod(v.shape)) for v in made.artifact.trainable_variables)
        assert found == sorted(p.numel() for p in net.parameters())


def test_variables_in_another_layout_stay_parameters_or_buffers():
    import keras

    class Table(keras.layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=tuple(shape[1:]), name="table", trainable=False, initializer="random_normal")
            self.gain = self.add_weight(shape=tuple(shape[1:]), name="gain", initializer="ones")

        def call(self, x):
            return x * self.gain + self.table

    image = keras.Input((5, 6, 3))
    x = keras.layers.Conv2D(4, 3)(keras.layers.ReLU()(Table()(keras.layers.Conv2D(2, 1)(image))))
    model = keras.Model(image, x)
    module = onnxbridge.convert(model, to="pytorch").model
    assert sum(p.numel() for p in module.parameters()) == sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert [b.numel() for b in module.buffers()] == [60]


def test_core_ml_weights_are_separate_parameters(tmp_path):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1)).eval()
    for layer in (net[0], net[2]):
        nn.init.zeros_(layer.bias)  # equal biases, and equal to the norm's
    onnxbridge.convert(net, to="coreml", inputs=(torch.randn(2, 4),), output=tmp_path / "net.mlpackage")
    module = onnxbridge.convert(tmp_path / "net.mlpackage", to="pytorch").model
    assert sorted(tuple(p.shape) for p in module.parameters()) == sorted(tuple(p.shape) for p in net.parameters())
    assert not list(module.buffers())
