"""Training of returned models goes on, by Keras's own means, also after saving and loading."""

from __future__ import annotations

import keras
import numpy as np
import onnx_ir as ir
import pytest

import onnxbridge
from onnxbridge.backends.tensorflow import backend
from onnxbridge.hub.builder.builder import Builder
from tests.backends.small_networks import assert_runs_like_hub

R = np.random.default_rng(0)


def _residual():
    layers, inputs = keras.layers, keras.Input((16, 16, 3), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)))
    for stride in (1, 2):
        y = layers.ReLU()(layers.Conv2D(8, 3, strides=stride, padding="same")(x))
        y = layers.BatchNormalization()(layers.ReLU()(layers.Conv2D(8, 3, padding="same")(y)))
        x = layers.ReLU()(layers.Add()([y, x if stride == 1 else layers.Conv2D(8, 1, strides=2)(x)]))
    return keras.Model(inputs, layers.Dense(4, name="logits")(layers.GlobalAveragePooling2D()(x))), R.normal(size=(12, 16, 16, 3))


def _transformer():
    layers, inputs = keras.layers, keras.Input((None,), dtype="int32", name="ids")
    x = layers.Embedding(40, 16)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 8)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="gelu")(x)))
    return keras.Model(inputs, layers.Dense(4, name="logits")(layers.GlobalAveragePooling1D()(x))), R.integers(0, 40, (12, 9))


@pytest.mark.parametrize("make", [_residual, _transformer])
def test_twenty_steps_of_adam_lower_the_loss(make, tmp_path):
    keras.utils.set_random_seed(0)
    source, data = make()
    made = onnxbridge.convert(source, to="tensorflow", output=tmp_path / "net.keras")
    data, labels = data.astype(source.input.dtype), np.arange(12) % 4
    assert len(made.model.trainable_variables) == len(source.trainable_variables)
    loaded = keras.models.load_model(tmp_path / "net.keras")
    for model in (made.model, loaded):
        model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        losses = model.fit(data, labels, batch_size=12, epochs=20, shuffle=False, verbose=0).history["loss"]
        assert losses[-1] < 0.7 * losses[0]


def test_any_batch_and_length():
    source, _ = _transformer()
    model = onnxbridge.convert(source, to="tensorflow").model
    assert model.inputs[0].shape == (None, None)
    for shape in ((1, 1), (3, 20)):
        ids = R.integers(0, 40, shape).astype(np.int32)
        np.testing.assert_allclose(model(ids), source(ids), rtol=1e-4, atol=1e-5)


def test_projections_into_heads_are_dense_layers_with_a_bias():
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, ["N", 6, 8])
    kernel = op.constant(R.normal(size=(8, 8)).astype(np.float32), "proj.weight")
    bias = op.constant(R.normal(size=(2, 4)).astype(np.float32), "proj.bias")
    y = op.Relu(op.Add(op.Reshape(op.MatMul(x, kernel), [-1, 6, 2, 4]), bias))
    hub = op.model([x], [op.output(y, "y")])
    model = backend.from_hub(hub)
    assert [type(o).__name__ for o in model.operations] == ["InputLayer", "Dense", "Reshape", "Activation"]
    assert_runs_like_hub(backend, hub, model, {"x": R.normal(size=(3, 6, 8)).astype(np.float32)}, rtol=1e-4, atol=1e-5)
