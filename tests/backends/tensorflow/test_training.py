"""Training of returned models goes on, by Keras's own means, also after saving and loading."""

from __future__ import annotations

import keras
import numpy as np
import pytest

import onnxbridge

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
    inputs = keras.Input((6, 8), name="x")
    source = keras.Model(inputs, keras.layers.MultiHeadAttention(2, 4)(inputs, inputs))
    for weight in source.weights:
        weight.assign(R.normal(size=weight.shape))
    model = onnxbridge.convert(source, to="tensorflow").model
    kinds = [type(o).__name__ for o in model.operations]
    assert kinds.count("Dense") == 4
    assert "Operators" not in kinds
    x = R.normal(size=(3, 6, 8)).astype(np.float32)
    np.testing.assert_allclose(model(x), source(x), rtol=1e-4, atol=1e-5)
