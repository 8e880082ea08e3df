"""Random operators: other numbers than TensorFlow's, of the same distribution."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import onnxbridge
from onnxbridge.frontends.tensorflow.ops import rule


def run(source, inputs, feeds):
    """The outputs of the model at the opset that users get: ONNX Runtime does not have the newest random operators."""
    model = onnxbridge.convert(source, to="onnx", inputs=inputs, verify=False).model
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


N = 20000
SHAPE = tf.TensorSpec([1], tf.int32, name="n")
RANDOM = {
    "RandomUniform": (lambda n: tf.raw_ops.RandomUniform(shape=n, dtype=tf.float32), 0.5, 12**-0.5, 0, 1),
    "RandomStandardNormal": (lambda n: tf.raw_ops.RandomStandardNormal(shape=n, dtype=tf.float64), 0, 1, -9, 9),
    "TruncatedNormal": (lambda n: tf.raw_ops.TruncatedNormal(shape=n, dtype=tf.float32), 0, 0.8796, -2, 2),
    "RandomUniformInt": (lambda n: tf.raw_ops.RandomUniformInt(shape=n, minval=-3, maxval=5), 0.5, 2.2913, -3, 4),
    "Multinomial": (lambda n: tf.raw_ops.Multinomial(logits=tf.math.log([[0.25, 0.75]]), num_samples=n[0])[0], 0.75, 0.433, 0, 1),
    "RandomShuffle": (lambda n: tf.raw_ops.RandomShuffle(value=tf.range(n[0])), (N - 1) / 2, N * 12**-0.5, 0, N - 1),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("static", [False, True])
def test_samples_have_the_distribution(name, static):
    make, mean, deviation, low, high = RANDOM[name]
    if static:
        spec = [tf.TensorSpec([1], tf.float32, name="x")]
        y = run(tf.function(lambda x: (make(tf.constant([N])), x)), spec, {"x": np.zeros(1, np.float32)})[0]
    else:
        [y] = run(tf.function(make, input_signature=[SHAPE]), None, {"n": np.array([N], np.int32)})
    assert y.shape == (N,) and y.dtype == make(tf.constant([N])).numpy().dtype
    assert low <= y.min() and y.max() <= high
    assert abs(y.mean() - mean) < 0.05 * deviation + 1e-9 and abs(y.std() / deviation - 1) < 0.05


def test_a_shuffle_is_a_permutation():
    [y] = run(tf.function(lambda x: tf.raw_ops.RandomShuffle(value=x)), [tf.TensorSpec([None, 2], tf.float32, name="x")],
              {"x": np.arange(40, dtype=np.float32).reshape(20, 2)})  # fmt: skip
    assert sorted(map(tuple, y)) == [(2.0 * i, 2.0 * i + 1) for i in range(20)] and not np.array_equal(y, np.sort(y, axis=0))


def test_a_distorted_box_covers_the_object():
    boxes = np.array([[[0.3, 0.3, 0.6, 0.7]]], np.float32)

    @tf.function(input_signature=[tf.TensorSpec([1, 1, 4], tf.float32, name="boxes")])
    def sample(boxes):
        return tf.image.sample_distorted_bounding_box([100, 80, 3], boxes, min_object_covered=0.5, area_range=(0.2, 0.9))

    for _ in range(5):
        begin, size, [[[top, left, bottom, right]]] = run(sample, None, {"boxes": boxes})
        np.testing.assert_allclose([top * 100, left * 80, bottom * 100, right * 80],
                                   [*begin[:2], begin[0] + size[0], begin[1] + size[1]], atol=1e-3)  # fmt: skip
        assert size[2] == -1 and 0.2 <= (bottom - top) * (right - left) <= 0.9 and 0.74 <= size[1] / size[0] <= 1.36
        shared = (min(bottom, 0.6) - max(top, 0.3)) * (min(right, 0.7) - max(left, 0.3))
        assert shared >= 0.5 * 0.3 * 0.4 - 1e-6


def test_every_random_rule_is_tested():
    tested = {*RANDOM, "SampleDistortedBoundingBoxV2"}
    assert {o for o in rule if rule[o].kind == "random"} == tested
