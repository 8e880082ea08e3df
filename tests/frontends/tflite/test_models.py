"""Models that TensorFlow's converter writes: float, float16, dynamic range and int8, several signatures, dynamic sizes."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers
from onnx import numpy_helper

import onnxbridge
from onnxbridge.errors import UsageError
from onnxbridge.frontends.tflite import frontend
from tests.frontends.tflite.compare import agree, hub_of, saved

IMAGES = np.random.default_rng(0).uniform(-1, 1, (8, 16, 16, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def network():
    keras.utils.set_random_seed(1)
    return keras.Sequential([
        keras.Input((16, 16, 3)), layers.Conv2D(8, 3, padding="same", activation="relu"), layers.MaxPooling2D(),
        layers.DepthwiseConv2D(3, padding="same"), layers.BatchNormalization(), layers.ReLU(6.0),
        layers.Conv2D(12, 3, strides=2, padding="same"), layers.GlobalAveragePooling2D(), layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


def _converted(network, kind):
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind.startswith("int8"):
        converter.representative_dataset = lambda: ([image[None]] for image in IMAGES)
    if kind == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


@pytest.mark.parametrize("kind", ["float32", "float16", "dynamic range", "int8 inside", "int8"])
def test_a_convolutional_network(network, tmp_path, kind):
    source = saved(tmp_path, _converted(network, kind))
    feeds = {next(iter(hub_of(source).graph.inputs)).name: IMAGES[:1]}
    if kind == "int8":
        feeds = {n: np.clip(np.round(v * 127), -128, 127).astype(np.int8) for n, v in feeds.items()}
    found = agree(source, feeds, rtol=2e-2 if "inside" in kind else 1e-5, steps=2)
    assert sum(n.op_type == "Transpose" for n in found.graph) <= 2


def test_a_quantized_network_with_average_pools_loads_in_onnx_runtime_as_it_is(tmp_path):
    """With its default optimizations, which replace quantized operators."""
    keras.utils.set_random_seed(1)
    network = keras.Sequential([
        keras.Input((16, 16, 3)), layers.AveragePooling2D(2, padding="same"), layers.Conv2D(8, 3), layers.AveragePooling2D(3, 1),
    ])  # fmt: skip
    model = onnxbridge.convert(saved(tmp_path, _converted(network, "int8 inside")), "onnx").model
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {session.get_inputs()[0].name: IMAGES[:1]})[0].shape == (1, 4, 4, 8)


@pytest.fixture(scope="module")
def deep():
    keras.utils.set_random_seed(1)
    return keras.Sequential([
        keras.Input((16, 16, 3)), layers.Conv2D(16, 3, activation="relu"), layers.Conv2D(16, 3, strides=2, activation="relu"),
        layers.Conv2D(16, 3, activation="relu"), layers.Flatten(), layers.Dense(10),
    ])  # fmt: skip


@pytest.mark.parametrize("kind", ["int8 inside", "int8"])
def test_kernels_of_integers_are_a_step_away_from_the_numbers(deep, tmp_path, kind):
    """They round twice, which moves about one number of 500 by a step at each convolution."""
    source = saved(tmp_path, _converted(deep, kind))
    conversion = onnxbridge.convert(source, "onnx")
    assert conversion.report.agrees
    (output,) = conversion.report.outputs
    if kind == "int8":
        assert 1 <= output.tolerance.atol <= 8 and not output.tolerance.mismatches
    weights = max(conversion.model.graph.initializer, key=lambda i: np.prod(i.dims))
    weights.CopyFrom(numpy_helper.from_array(-numpy_helper.to_array(weights), weights.name))
    assert not onnxbridge.verify(source, conversion.model).agrees


def _product(adj_x, adj_y, *sizes):
    weights = tf.constant(np.random.default_rng(2).standard_normal(sizes), tf.float32)
    return lambda x: tf.matmul(x, weights, transpose_a=adj_x, transpose_b=adj_y)


def _transposed_convolution(strides):
    filters = tf.constant(np.random.default_rng(2).standard_normal((3, 3, 24, 16)), tf.float32)
    return lambda x: tf.nn.conv2d_transpose(x, filters, (2, 7 * strides, 7 * strides, 24), strides)


@pytest.mark.parametrize("function, shape", [
    (_product(False, False, 1, 64, 48), (4, 5, 64)), (_product(False, False, 4, 64, 48), (4, 5, 64)),
    (_product(True, False, 4, 64, 48), (4, 64, 5)), (_product(False, True, 4, 48, 64), (4, 5, 64)),
    (_transposed_convolution(1), (2, 7, 7, 16)), (_transposed_convolution(2), (2, 7, 7, 16)),
])  # fmt: skip
def test_inputs_that_kernels_round_to_eight_bits(tmp_path, function, shape):
    traced = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec(shape, name="x"))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([traced])
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    x = np.random.default_rng(3).uniform(-1, 3, shape).astype(np.float32)
    found = agree(saved(tmp_path, converter.convert()), {"x": x})
    assert any(v.const_value is not None and v.dtype.name == "INT8" for v in found.graph.initializers.values())


@pytest.mark.parametrize("target", ["onnx", "pytorch", "tensorflow", "coreml"])
def test_every_target_is_verified_against_the_interpreter(network, tmp_path, target):
    source = saved(tmp_path, _converted(network, "float32"))
    result = onnxbridge.convert(source, to=target)
    assert result.report.passed and "TensorFlow Lite" in str(result.report)


def test_bisect_names_the_tensor_that_differs(network, tmp_path):
    import onnx
    from onnx import numpy_helper

    source = saved(tmp_path, _converted(network, "float32"))
    made = onnxbridge.convert(source, to="onnx", verify=False).model
    weight = max(made.graph.initializer, key=lambda t: len(t.dims))
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * 1.5, weight.name))
    onnx.save(made, tmp_path / "changed.onnx")
    found = onnxbridge.bisect(source, tmp_path / "changed.onnx")
    assert found.first is not None and found.first.op in ("Conv", "Relu", "Clip", "MaxPool")


class Two(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def double(self, x):
        return {"doubled": x * 2.0}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def square(self, x):
        return {"squared": x * x}


@pytest.fixture
def two(tmp_path):
    module = Two()
    tf.saved_model.save(module, str(tmp_path / "two"), signatures={"double": module.double, "square": module.square})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "two"), signature_keys=["double", "square"])
    return saved(tmp_path, converter.convert())


def test_signatures_are_selected_by_name(two):
    for key, output in (("double", "doubled"), ("square", "squared")):
        found = agree((str(two), key), {"x": np.array([[1, 2, 3], [4, 5, 6]], np.float32)})
        assert [v.name for v in found.graph.outputs] == [output]
    with pytest.raises(UsageError, match="choose one of double, square"):
        frontend.to_hub(two)
    with pytest.raises(UsageError, match="has no signature 'cube'"):
        frontend.to_hub((str(two), "cube"))


def test_dynamic_sizes_get_names(two):
    found = hub_of((str(two), "double"))
    assert [str(s) for s in found.graph.inputs[0].shape] == ["N", "3"]
    found = hub_of((str(two), "double"), dynamic={"x": {0: "batch"}})
    assert [str(s) for s in found.graph.inputs[0].shape] == ["batch", "3"]
