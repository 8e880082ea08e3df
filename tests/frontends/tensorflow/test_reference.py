"""The verification reference: TensorFlow run as by its user, with any names, structures and sizes of inputs."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import onnxbridge
from onnxbridge.errors import UsageError, VerificationError
from onnxbridge.frontends.tensorflow import frontend


class Edges(keras.Model):
    """Edge detection at five scales (HED): side outputs, upsampled, cropped to the image's static size, and fused."""

    def __init__(self, upsampling="deconvolution", **options):
        super().__init__(**options)
        self.blocks = [[layers.Conv2D(c, 3, padding="same", activation="relu") for _ in range(2)] for c in (4, 4, 6, 6, 8)]
        self.pools = [layers.MaxPooling2D(2, padding="same") for _ in range(4)]
        self.sides = [layers.Conv2D(1, 1) for _ in range(5)]
        self.upsampling = upsampling
        self.upsample = [
            layers.Conv2DTranspose(1, 2 * 2**i, strides=2**i, padding="same")
            if upsampling == "deconvolution"
            else layers.UpSampling2D(2**i, interpolation="bilinear")
            for i in range(5)
        ]
        self.fuse = layers.Conv2D(1, 1)

    def call(self, image):
        height, width = image.shape[1:3]
        x, found = image, []
        for i, block in enumerate(self.blocks):
            x = self.pools[i - 1](x) if i else x
            for layer in block:
                x = layer(x)
            side = self.upsample[i](self.sides[i](x))
            if self.upsampling == "resize":
                side = layers.Resizing(height, width)(side)
            found.append(side[:, :height, :width])
        return [*found, self.fuse(layers.concatenate(found))]


def _built(model, built, size):
    if built == "by a call of this size":
        model(np.zeros((1, *size, 3), np.float32))
    elif built == "by a call of another size":
        model(np.zeros((2, 64, 96, 3), np.float32))
    elif built == "with dynamic sizes":
        model.build((None, None, None, 3))
    elif built == "with another size":
        model.build((None, 64, 96, 3))
    return model


BUILT = ["never", "by a call of this size", "by a call of another size", "with dynamic sizes", "with another size"]


@pytest.mark.parametrize(("built", "upsampling"), [*((h, "deconvolution") for h in BUILT), ("with dynamic sizes", "upsampling")])
@pytest.mark.filterwarnings("ignore:.build():UserWarning")
def test_a_model_that_reads_static_sizes(built, upsampling):
    size = 45, 50
    model = _built(Edges(upsampling), built, size)
    found = onnxbridge.convert(model, to="onnx", inputs=[((1, *size, 3), "float32")])
    assert found.report.passed
    feeds = {"input": np.random.default_rng(0).standard_normal((1, *size, 3)).astype(np.float32)}
    for got, expected in zip(frontend.runner(model)(feeds).values(), model(feeds["input"]), strict=True):
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["image", "input", "x"])
def test_any_input_name(name):
    model = Edges("resize")
    found = onnxbridge.convert(model, to="onnx", inputs={name: ((1, 45, 50, 3), "float32")})
    assert found.report.passed and [v.name for v in found.hub.graph.inputs] == [name]


def test_a_dynamic_batch():
    found = onnxbridge.convert(Edges("resize"), to="onnx", inputs={"image": ((None, 45, 50, 3), "float32")})
    assert found.report.passed and not isinstance(found.hub.graph.inputs[0].shape[0], int)


class Static(layers.Layer):
    """Fails or behaves differently if its input's size is dynamic."""

    def call(self, x):
        return tf.concat([x, tf.zeros((1, int(x.shape[1] or 7), 1))], -1)


def test_a_layer_in_a_functional_model_reads_a_static_size():
    image = layers.Input((None, 3), batch_size=1)
    model = keras.Model(image, Static()(image))
    assert onnxbridge.convert(model, to="onnx", inputs=[((1, 5, 3), "float32")]).report.passed


class TwoDense(keras.Model):
    def __init__(self):
        super().__init__()
        self.left, self.right = layers.Dense(3), layers.Dense(3)


class ByArguments(TwoDense):
    def call(self, image, mask_of, scale=2.0):
        return self.left(image) * scale - self.right(mask_of)


class ByDict(TwoDense):
    def call(self, parts):
        return {"y": self.left(parts["image"]) - self.right(parts["mask_of"])}


class ByList(TwoDense):
    def call(self, inputs, training=False):
        return self.left(inputs[0]) - self.right(inputs[1])


SPECS = {"image": ((2, 4), "float32"), "mask_of": ((2, 5), "float32")}


@pytest.mark.parametrize(("kind", "inputs"), [
    (ByArguments, SPECS), (ByArguments, dict(reversed(SPECS.items()))), (ByArguments, list(SPECS.values())), (ByDict, SPECS),
    (ByList, list(SPECS.values())),
])  # fmt: skip
@pytest.mark.parametrize("target", ["onnx", "tensorflow"])
def test_two_inputs_in_every_form(kind, inputs, target):
    found = onnxbridge.convert(kind(), to=target, inputs=inputs)
    assert found.report.passed
    names = list(inputs) if isinstance(inputs, dict) else ["input_0", "input_1"]
    assert [v.name for v in found.hub.graph.inputs] == names


@pytest.mark.parametrize("inputs", [SPECS, list(SPECS.values())], ids=["named", "in order"])
def test_functions_in_every_form(inputs):
    weights = tf.random.stateless_normal((4, 3), [1, 2]), tf.random.stateless_normal((5, 3), [3, 4])

    def plain(image, mask_of):
        return image @ weights[0] - mask_of @ weights[1]

    assert onnxbridge.convert(tf.function(plain), to="onnx", inputs=inputs).report.passed
    if isinstance(inputs, list):
        collected = tf.function(lambda *parts: plain(*parts), autograph=False)
        assert onnxbridge.convert(collected, to="onnx", inputs=inputs).report.passed


def test_the_relevant_error_line_is_shown():
    @tf.function(input_signature=[tf.TensorSpec([None, None], name="x")], autograph=False)
    def function(x):
        return tf.reshape(x, [7919, 3])

    with pytest.raises(VerificationError, match=r"Input to reshape is a tensor with \d+ values, but .* shape has 23757"):
        onnxbridge.convert(function, to="onnx")


def test_incompatible_sizes_for_a_saved_model_are_a_usage_error(tmp_path):
    module = tf.Module()
    module.f = tf.function(lambda x: tf.reshape(x, [7, 3]), input_signature=[tf.TensorSpec([None, None], name="x")])
    tf.saved_model.save(module, str(tmp_path / "net"), signatures=module.f)
    with pytest.raises(UsageError, match="cannot take these inputs: .*Cannot reshape a tensor with 4 elements"):
        onnxbridge.convert(tmp_path / "net", to="onnx", inputs=[((2, 2), "float32")])


def test_a_fusion_that_tensorflow_makes_and_cannot_run():
    """TensorFlow 2.21 on a CPU fuses convolution, normalization and Mish, and has no kernel for that."""
    kernel = tf.constant(np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32))
    norm = [tf.ones([8]) * value for value in (0.5, 0.25, 0.1, 2.0)]

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 8], tf.float32, name="x")])
    def block(x):
        y = tf.nn.conv2d(x, kernel, 1, "SAME")
        y = tf.compat.v1.nn.fused_batch_norm(y, *norm, is_training=False)[0]
        return y * tf.math.tanh(tf.math.softplus(y))

    assert onnxbridge.convert(block).report.passed
    assert tf.config.optimizer.get_experimental_options().get("remapping", True)


def test_a_separable_convolution_of_one_channel():
    """TensorFlow 2.21 with oneDNN fuses the convolution and the bias, and has no memory layout for the kernel."""
    net = keras.Sequential([keras.Input((9, 6, 1)), layers.SeparableConv2D(1, 1, activation="log_sigmoid")])
    assert onnxbridge.convert(net).report.passed
