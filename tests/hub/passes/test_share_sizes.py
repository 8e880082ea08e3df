"""Dynamic sizes are those of the inputs, so that masks and positions of every layer are computed once."""

from __future__ import annotations

from collections import Counter

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers, ops

import onnxbridge


class Masked(layers.Layer):
    """A layer that makes its own causal mask and positions, as decoders of language models do."""

    def build(self, shape):
        self.dense = layers.Dense(shape[-1])
        self.dense.build(shape)

    def call(self, x):
        length = ops.shape(x)[1]
        scores = ops.matmul(self.dense(x), ops.transpose(x, (0, 2, 1)))
        mask = tf.linalg.band_part(tf.ones((length, length), tf.bool), -1, 0)
        mask = tf.slice(mask, (0, 0), (length, length))
        angles = ops.einsum("s,d->sd", ops.arange(length, dtype="float32"), np.linspace(1, 2, 4, dtype=np.float32))
        return ops.matmul(ops.softmax(ops.where(mask, scores, -1e9)), x * ops.cos(angles))


@pytest.fixture(scope="module")
def converted():
    keras.utils.set_random_seed(0)
    x = keras.Input((None, 4), name="x")
    y = x
    for _ in range(3):
        y = Masked()(y)
    return onnxbridge.convert(keras.Model(x, y), "onnx")


def test_positions_and_masks_are_computed_once(converted):
    counts = Counter(node.op_type for node in converted.model.graph.node)
    assert counts["Cos"] == 1 and counts["Softmax"] == 3
    assert counts["Range"] <= 2 and counts["Shape"] == 1
    assert counts["Slice"] == 0  # of the whole mask


def test_every_size_is_named(converted):
    shapes = [d for v in converted.model.graph.value_info for d in v.type.tensor_type.shape.dim]
    assert all(d.dim_param or d.HasField("dim_value") for d in shapes)


def test_other_lengths_agree(converted):
    assert converted.report.agrees
    session = onnxruntime.InferenceSession(converted.model.SerializeToString())
    for length in (1, 3, 7):
        found = session.run(None, {"x": np.random.default_rng(length).normal(size=(2, length, 4)).astype(np.float32)})
        assert found[0].shape == (2, length, 4)


def test_no_constant_is_left_unused():
    x = keras.Input((8,))
    y = layers.Dense(5, activation=lambda v: keras.activations.gelu(v, approximate=True))(x)
    model = onnxbridge.convert(keras.Model(x, layers.Dense(4, activation="gelu")(y)), "onnx").model
    onnx.checker.check_model(model, full_check=True)
    assert [n.op_type for n in model.graph.node].count("Gelu") == 2
    assert {i.name for i in model.graph.initializer} <= {name for node in model.graph.node for name in node.input}
