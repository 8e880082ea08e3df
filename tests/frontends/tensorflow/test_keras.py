"""Keras layers and applications, converted and compared with Keras."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import onnxbridge
from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.frontends.tensorflow import frontend
from tests.frontends.tensorflow.compare import agree, feeds_for, hub_of, kinds

I = keras.Input  # noqa: E741
ACTIVATIONS = [
    "elu", "selu", "softplus", "softsign", "relu", "tanh", "sigmoid", "hard_sigmoid", "gelu", "silu", "leaky_relu", "relu6",
    "mish", "log_softmax", "celu", "squareplus", "hard_tanh", "soft_shrink", "hard_shrink", "tanh_shrink", "sparse_plus",
    "exponential",
]  # fmt: skip

STACKS = {
    "dense": lambda: [I((6,)), layers.Dense(4, activation="gelu"), layers.Dropout(0.5), layers.Dense(2)],
    "conv1d": lambda: [I((20, 3)), layers.Conv1D(4, 3, padding="causal"), layers.Conv1D(4, 3, strides=2), layers.MaxPooling1D(2)],
    "conv1d dilated": lambda: [I((20, 3)), layers.Conv1D(4, 3, padding="causal", dilation_rate=2)],
    "conv2d": lambda: [I((9, 8, 3)), layers.Conv2D(4, 3, strides=2, padding="same"), layers.Conv2D(6, 2, groups=2)],
    "conv2d dilated": lambda: [I((16, 16, 3)), layers.Conv2D(4, 3, dilation_rate=(2, 3), padding="same")],
    "conv3d": lambda: [I((6, 6, 6, 2)), layers.Conv3D(3, 2, padding="same"), layers.MaxPooling3D(2)],
    "depthwise": lambda: [I((9, 8, 3)), layers.DepthwiseConv2D(3, depth_multiplier=2), layers.SeparableConv2D(4, 3)],
    "transposed": lambda: [I((8, 8, 3)), layers.Conv2DTranspose(4, 3, strides=2, padding="same"), layers.Conv2DTranspose(2, 3)],
    "transposed 1d": lambda: [I((8, 3)), layers.Conv1DTranspose(4, 3, strides=2, padding="same")],
    "pools": lambda: [I((9, 8, 3)), layers.MaxPooling2D(3, 2, padding="same"), layers.AveragePooling2D(3, 1, padding="same")],
    "global": lambda: [I((4, 8, 3)), layers.GlobalMaxPooling2D(keepdims=True), layers.GlobalAveragePooling2D()],
    "batch norm": lambda: [I((4, 8, 3)), layers.BatchNormalization(), layers.BatchNormalization(axis=1, scale=False)],
    "layer norm": lambda: [I((5, 6)), layers.LayerNormalization(), layers.Dense(4)],
    "group norm": lambda: [I((5, 6, 8)), layers.GroupNormalization(4), layers.UnitNormalization()],
    "up": lambda: [I((5, 6, 3)), layers.UpSampling2D(2), layers.UpSampling2D(2, interpolation="bilinear")],
    "up 1d": lambda: [I((5, 6)), layers.UpSampling1D(2), layers.Cropping1D(1), layers.ZeroPadding1D(2)],
    "crop": lambda: [I((5, 6, 3)), layers.Cropping2D(1), layers.ZeroPadding2D(((1, 2), (0, 3)))],
    "shapes": lambda: [I((5, 6)), layers.Permute((2, 1)), layers.Reshape((3, 10)), layers.Flatten(), layers.RepeatVector(2)],
    "flatten": lambda: [I((5, 6, 3)), layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(3)],
    "time": lambda: [I((4, 8, 8, 2)), layers.TimeDistributed(layers.Conv2D(3, 3)), layers.TimeDistributed(layers.Flatten())],
    "prelu": lambda: [I((5, 6, 3)), layers.PReLU(shared_axes=[1, 2], alpha_initializer="random_normal"), layers.Softmax(axis=1)],
    "relu": lambda: [I((5,)), layers.ReLU(max_value=3, negative_slope=0.1, threshold=0.2), layers.ELU(), layers.LeakyReLU()],
    "images": lambda: [I((5, 6, 3)), layers.Resizing(8, 9), layers.Rescaling(0.5, -1), layers.Normalization(mean=1, variance=2)],
    "einsum": lambda: [I((4, 6)), layers.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d")],
    "lstm": lambda: [I((5, 6)), layers.LSTM(4, return_sequences=True), layers.LSTM(3, go_backwards=True)],
    "lstm unrolled": lambda: [I((5, 6)), layers.LSTM(4, unroll=True)],
    "gru": lambda: [I((5, 6)), layers.GRU(4, return_sequences=True), layers.GRU(3, reset_after=False)],
    "any length": lambda: [I((None, 6)), layers.GRU(4, return_sequences=True), layers.SimpleRNN(3)],
    "bidirectional": lambda: [I((5, 6)), layers.Bidirectional(layers.LSTM(4, return_sequences=True))],
    "conv lstm": lambda: [I((3, 8, 8, 2)), layers.ConvLSTM2D(3, 3)],
}


def _randomized(model):
    """Randomize statistics and biases: the zeros and ones of a new model would hide errors."""
    rng = np.random.default_rng(1)
    for v in model.variables:
        low, high = {"moving_variance": (0.5, 1.5), "gamma": (0.5, 1.5)}.get(v.path.rsplit("/")[-1], (-0.5, 0.5))
        if v.path.rsplit("/")[-1] in ("moving_variance", "gamma", "beta", "bias", "moving_mean"):
            v.assign(rng.uniform(low, high, v.shape))
    return model


@pytest.mark.parametrize("name", STACKS)
def test_layers(name):
    keras.utils.set_random_seed(0)
    model = _randomized(keras.Sequential(STACKS[name]()))
    hub = agree(model)
    assert [v.name for v in hub.graph.inputs] == [model.inputs[0].name]
    assert hub.graph.inputs[0].shape[0].value == "N"


@pytest.mark.parametrize("name", ["conv1d dilated", "conv2d dilated", "depthwise dilated", "conv2d dilated valid"])
def test_dilated_convolution_is_one_operator(name):
    stack = (
        STACKS.get(name)
        or {
            "depthwise dilated": lambda: [I((16, 15, 3)), layers.DepthwiseConv2D(3, dilation_rate=2, padding="same")],
            "conv2d dilated valid": lambda: [I((16, 17, 3)), layers.Conv2D(4, (2, 3), dilation_rate=(3, 2))],
        }[name]
    )
    found = kinds(agree(keras.Sequential(stack())))
    assert found["Conv"] == 1 and not {"Reshape", "Slice"} & set(found)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("shape", [(None, None, 3), (None, 13, 3), (8, 9, 10, 3), (None, None, None, 3)])
def test_dilated_convolution_between_spaces_and_batches(shape, padding):
    """TensorFlow pads sizes that are not known to a multiple of the dilation, and crops the result."""
    axes = len(shape) - 1
    weights = tf.random.normal([3] * axes + [3, 4])

    @tf.function(input_signature=[tf.TensorSpec([None, *shape], name="x")])
    def dilated(x):
        def convolution(batches, spatial, padding):
            return tf.nn.convolution(batches, weights, padding=padding)

        return tf.compat.v1.nn.with_space_to_batch(x, [3] * axes, padding, convolution, filter_shape=weights.shape)

    feeds = {"x": np.random.default_rng(0).normal(size=(2, *(size or 11 for size in shape))).astype(np.float32)}
    assert kinds(agree(dilated, feeds=feeds, rtol=1e-4)) == {"Transpose": 2, "Conv": 1}


@pytest.mark.parametrize("shared", [None, [1, 2], [1]])
def test_prelu_is_one_operator(shared):
    found = kinds(agree(keras.Sequential([I((5, 6, 3)), layers.PReLU(shared_axes=shared, alpha_initializer="random_normal")])))
    assert found == {"PRelu": 1}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    agree(keras.Sequential([I((50,)), layers.Activation(name)]))


def test_attention():
    x = I((6, 8), name="x")
    y = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    z = layers.Attention(use_scale=True)([x, layers.GroupQueryAttention(4, 4, 2)(x, x)])
    agree(_randomized(keras.Model(x, [layers.Add()([x, y]), z])))


def test_embedding_and_mask():
    ids = np.array([[1, 2, 0, 0, 0], [3, 0, 0, 0, 0], [1, 2, 3, 4, 5]], np.int32)
    stack = [I((5,), dtype="int32", name="ids"), layers.Embedding(9, 4, mask_zero=True), layers.LSTM(3)]
    agree(keras.Sequential(stack), None, {"ids": ids})


def test_named_inputs_and_outputs():
    a, b = I((6,), name="left"), I((6,), name="right")
    outputs = {"dot": layers.Dot(1)([a, b]), "cat": layers.Concatenate()([a, b]), "mean": layers.Average()([a, b])}
    hub = agree(keras.Model({"left": a, "right": b}, outputs))
    assert {v.name for v in hub.graph.inputs} == {"left", "right"}
    assert {v.name for v in hub.graph.outputs} == {"dot", "cat", "mean"}


def test_subclassed_model():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x, training=False):
            return tf.nn.relu(self.dense(x)) if not training else x

    net = Net()
    with pytest.raises(UsageError, match="inputs="):
        hub_of(net)
    hub = agree(net, (np.ones((2, 4), np.float32),))
    assert any("test_keras.py:" in n.metadata_props.get("onnxbridge.source", "") for n in hub.graph)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "transposes"), [("MobileNetV2", 64, 1), ("ResNet50", 48, 1), ("EfficientNetB0", 48, 1)])
def test_application(name, size, transposes):
    keras.utils.set_random_seed(0)
    model = _randomized(getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=10))
    hub = agree(model, rtol=1e-4)  # about fifty float32 layers with random statistics, whose errors accumulate
    assert kinds(hub)["Transpose"] == transposes  # of the input only
    assert "Pad" not in kinds(hub)


def test_weights_are_not_copied():
    model = keras.Sequential([I((64,)), layers.Dense(64, name="wide")])
    hub = hub_of(model)
    kernel = next(v for v in hub.graph.initializers.values() if v.name.endswith("wide/kernel"))
    own = model.get_layer("wide").kernel.value
    assert np.shares_memory(kernel.const_value.numpy(), own.read_value()._numpy())


def test_static_and_named_sizes():
    model = keras.Sequential([I((None, None, 3), name="image"), layers.Conv2D(2, 3, strides=2, padding="same")])
    assert [getattr(d, "value", d) for d in hub_of(model).graph.inputs[0].shape] == ["N", "image_1", "image_2", 3]
    fixed = agree(model, {"image": ((1, 9, 8, 3), "float32")})
    assert list(fixed.graph.inputs[0].shape) == [1, 9, 8, 3]
    named = hub_of(model, None, {"image": {1: "height"}})
    assert named.graph.inputs[0].shape[1].value == "height"
    with pytest.raises(UsageError, match="does not fit"):
        hub_of(model, {"image": ((1, 9, 8, 4), "float32")})
    with pytest.raises(UsageError, match="no input 'img'"):
        hub_of(model, {"img": ((1, 9, 8, 3), "float32")})


def test_keras_file(tmp_path):
    model = _randomized(keras.Sequential([I((8, 8, 1), name="image"), layers.Conv2D(4, 3), layers.BatchNormalization()]))
    for name in ("net.keras", "net.h5"):
        path = tmp_path / name
        model.save(path)
        assert frontend.accepts(path)
        hub = agree(path)
        feeds = feeds_for(hub)
        np.testing.assert_allclose(
            frontend.runner(path)(feeds)[hub.graph.outputs[0].name], model(feeds["image"]).numpy(), rtol=1e-5, atol=1e-6
        )


def test_lambda_is_rejected(tmp_path):
    model = keras.Sequential([I((4,)), layers.Lambda(lambda x: x * 2)])
    assert agree(model) is not None  # a live model is the user's own code
    for name in ("net.keras", "net.h5"):
        model.save(tmp_path / name)
        with pytest.raises(UnsafeFileError, match="Python code"):
            hub_of(tmp_path / name)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def test_damaged_files_and_wrong_files(tmp_path):
    model = keras.Sequential([I((64,)), layers.Dense(64)])
    model.save(tmp_path / "net.h5")
    model.save_weights(tmp_path / "net.weights.h5")
    model.export(tmp_path / "net", verbose=False)
    truncate(tmp_path / "net.h5")
    truncate(tmp_path / "net" / "variables" / "variables.data-00000-of-00001")
    with pytest.raises(UnsafeFileError, match=r"net\.h5: is damaged"):
        frontend.to_hub(tmp_path / "net.h5", None, None)
    with pytest.raises(UnsafeFileError, match="variables are missing or damaged"):
        frontend.to_hub(tmp_path / "net", None, None)
    with pytest.raises(UsageError, match="contains weights only; build the model"):
        frontend.to_hub(tmp_path / "net.weights.h5", None, None)


def test_a_model_that_cannot_run_on_unknown_sizes_says_which_to_give():
    x = keras.Input((None, None, 3), name="image")
    model = keras.Model(x, keras.layers.UpSampling2D(2, interpolation="bilinear")(keras.layers.Conv2D(4, 3)(x)))
    advice = r"If the model needs these sizes, give them, such as --inputs 'image:float32\[N,64,64,3"
    with pytest.raises(UsageError, match=r"unknown sizes of 'image': .{20,120}\. " + advice):
        onnxbridge.convert(model, "onnx")
    assert onnxbridge.convert(model, "onnx", inputs=["image:float32[1,8,9,3]"]).report.agrees
