"""Batch normalizations, factors and the casts of mixed precision are folded into the weights; on request everything is kept."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import onnxbridge

layers = keras.layers


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def with_statistics(model):
    generator = np.random.default_rng(0)
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.set_weights([generator.uniform(0.5, 2, w.shape) for w in layer.get_weights()])
    return model


def network():
    x = keras.Input((12, 12, 3))
    h = layers.BatchNormalization()(layers.Conv2D(4, 3, padding="same", use_bias=False)(x))
    h = layers.ReLU()(layers.BatchNormalization()(layers.DepthwiseConv2D(3)(h)))
    h = layers.BatchNormalization()(layers.Conv2DTranspose(4, 3, strides=2)(h))
    h = layers.Conv2D(5, 1, name="scaled")(h) * 0.3
    return with_statistics(keras.Model(x, layers.Dense(2)(layers.GlobalAveragePooling2D()(h))))


def op_types(model, **options):
    result = onnxbridge.convert(model, "onnx", **options)
    assert result.report.agrees
    return [n.op_type for n in result.model.graph.node], result


def test_normalizations_and_factors_are_folded():
    found, _ = op_types(network())
    assert not {"BatchNormalization", "Mul"} & set(found) and found.count("Transpose") == 1


def test_layers_and_weights_can_be_kept():
    model = network()
    found, result = op_types(model, fold_batch_norm=False)
    assert found.count("BatchNormalization") == 3 and "Mul" in found
    stored = {i.name: i for i in result.model.graph.initializer}
    assert any("scaled" in name and "bias" in name for name in stored)


def test_a_trained_factor_is_kept():
    class Scale(layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(), initializer="ones", name="scale")

        def call(self, x):
            return x * self.scale

    x = keras.Input((6, 6, 3))
    found, _ = op_types(keras.Model(x, Scale()(layers.Conv2D(4, 3)(x))))
    assert "Mul" in found


@pytest.fixture
def mixed_precision():
    keras.mixed_precision.set_global_policy("mixed_float16")
    yield
    keras.mixed_precision.set_global_policy("float32")


@pytest.mark.usefixtures("mixed_precision")
def test_mixed_precision_needs_no_transposes_of_weights():
    x = keras.Input((16, 16, 3))
    h = x
    for channels in (96, 96, 32):  # smaller weights are computed while converting
        h = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(channels, 3, padding="same")(h)))
    model = with_statistics(keras.Model(x, layers.Activation("linear", dtype="float32")(h)))
    kept, _ = op_types(model, fold_batch_norm=False)
    found, result = op_types(model)
    assert kept.count("Transpose") == found.count("Transpose") == 2
    assert found.count("Cast") < kept.count("Cast")
    kinds = {i.name: i.data_type for i in result.model.graph.initializer if len(i.dims) == 4}
    assert len(kinds) == 3 and set(kinds.values()) == {10}, "kernels are stored in float16"
