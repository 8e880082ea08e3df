"""Using the module: training, dynamic sizes, saving and loading."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf

from onnxbridge.backends.tensorflow import backend
from onnxbridge.hub.builder.builder import Builder
from tests.backends.small_networks import assert_runs_like_hub, countdown, image_classifier, images


@pytest.fixture(scope="module")
def classifier():
    hub = image_classifier()
    return hub, backend.from_hub(hub)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_any_batch_size(classifier, count):
    hub, module = classifier
    assert_runs_like_hub(backend, hub, module, {"image": images(count)}, rtol=1e-5, atol=1e-5)


def test_weights_are_variables_named_as_in_the_hub(classifier):
    _, module = classifier
    assert list(module.weights_by_name) == [
        "stem.conv.weight", "stem.conv.bias", "stem.bn.weight", "stem.bn.bias", "stem.bn.running_mean",
        "stem.bn.running_var", "blocks.0.conv.weight", "head.weight", "head.bias",
    ]  # fmt: skip
    assert len(module.trainable_variables) == 7
    assert len(module.non_trainable_variables) == 2


def test_inputs_by_keyword(classifier):
    _, module = classifier
    x = tf.constant(images(2))
    np.testing.assert_array_equal(module(image=x), module(x))
    with pytest.raises(TypeError, match="image"):
        module(x, other=x)


@pytest.mark.parametrize("other", [(1, 4, 1), (4, 1), (1, 1, 4), (4,), (1, 3, 1), (1, 1, 1, 4)])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 4, 4), (4, 4, 1)])
def test_sums_are_broadcast_as_in_onnx(shape, other, swapped):
    a, b = (np.random.default_rng(i).normal(size=s).astype(np.float32) for i, s in enumerate((shape, other)))
    try:
        expected = a + b
    except ValueError:
        pytest.skip("these shapes do not broadcast")
    op = Builder()
    x, y = op.input("x", ir.DataType.FLOAT, list(shape)), op.input("y", ir.DataType.FLOAT, list(other))
    model = op.model([x, y], [op.output(op.Add(*((y, x) if swapped else (x, y))), "sum")])
    run = backend.runner(backend.from_hub(model))
    np.testing.assert_array_equal(run({"x": a, "y": b})["sum"], expected)


def test_a_training_step_lowers_the_loss():
    module = backend.from_hub(image_classifier())
    x, labels = tf.constant(images(16)), tf.range(16) % 5
    losses = []
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, module(x)))
        for v, g in zip(module.trainable_variables, tape.gradient(loss, module.trainable_variables), strict=True):
            v.assign_sub(0.05 * g)
        losses.append(float(loss))
    assert losses[0] > losses[1] > losses[2]


def test_saved_model(classifier, tmp_path):
    _, module = classifier
    path = tmp_path / "net"
    assert backend.save(module, path) == [path]
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    assert list(signature.structured_outputs) == ["logits"]
    for count in (1, 5):
        x = tf.constant(images(count))
        np.testing.assert_allclose(signature(image=x)["logits"], module(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("trip_count", [0, 1, 4])
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_runs_at_run_time(trip_count, sign):
    hub = countdown()
    feeds = {"x": np.array([1, 2, 3], np.float32) * sign, "trip_count": np.array(trip_count)}
    assert_runs_like_hub(backend, hub, backend.from_hub(hub), feeds)


def test_many_layers_of_operators_give_no_warning_of_tracing(monkeypatch):
    """TensorFlow counts the traces of functions that share their code together."""
    warnings = []
    monkeypatch.setattr(tf.get_logger(), "warning", lambda *args, **kwargs: warnings.append(args))
    op = Builder()
    x = y = op.input("x", ir.DataType.FLOAT, ["N", 4])
    for _ in range(9):
        y = op.Relu(op.CumSum(y, np.array(1), exclusive=1, reverse=1))
    model = backend.from_hub(op.model([x], [op.output(y, "y")]))
    assert sum(type(layer).__name__ == "Operators" for layer in model.layers) == 9
    for rows in (2, 3, 4):
        model(np.ones((rows, 4), np.float32))
    assert not warnings
