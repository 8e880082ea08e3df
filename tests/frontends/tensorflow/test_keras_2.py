"""Models of Keras 2: live ones, and files that Keras 3 cannot load."""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

import onnxbridge
from onnxbridge.errors import UnsafeFileError

keras_2 = pytest.importorskip("tf_keras", reason="tf_keras reads Keras 2 files; it is installed by `make test`")
layers = keras_2.layers


@pytest.fixture(scope="module")
def model():
    keras_2.utils.set_random_seed(0)
    x = keras_2.Input((8, 8, 3), name="image")
    h = layers.BatchNormalization(name="norm")(layers.Conv2D(5, 3, use_bias=False, name="conv")(x))
    return keras_2.Model(x, layers.Dense(4, name="scores")(layers.Flatten()(layers.ReLU()(h))))


def run(proto, *arrays):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), arrays, strict=True)))


def test_live_model(model):
    result = onnxbridge.convert(model, "onnx")
    assert result.report.passed and [i.name for i in result.model.graph.input] == ["image"]


@pytest.mark.parametrize("name", ["net.h5", "net.keras", "net"])
def test_files(model, tmp_path, name):
    model.save(tmp_path / name)
    result = onnxbridge.convert(tmp_path / name, "onnx")
    assert result.report.passed
    assert any(i.name.endswith("scores/kernel") for i in result.model.graph.initializer)
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(run(result.model, x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_subclassed_model():
    class Net(keras_2.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x):
            return self.dense(x) * 2

    net, x = Net(), np.ones((2, 5), np.float32)
    net(x)
    assert onnxbridge.convert(net, "onnx", inputs=(x,)).report.passed


def test_inputs_that_a_subclass_declares_by_name():
    class Net(keras_2.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(3)
            self.inputs = {"ids": keras_2.Input((4,), name="ids"), "weights": keras_2.Input((4,), name="weights")}

        def call(self, inputs):
            return self.dense(inputs["ids"]) * tf.reduce_sum(inputs["weights"])

    result = onnxbridge.convert(Net())
    assert result.report.passed and [i.name for i in result.model.graph.input] == ["ids", "weights"]


def test_masked_recurrent_layer():
    keras_2.utils.set_random_seed(0)
    net = keras_2.Sequential([keras_2.Input((7,)), layers.Embedding(10, 4, mask_zero=True), layers.LSTM(5)])
    result = onnxbridge.convert(net, "onnx")
    assert result.report.agrees and any(n.op_type == "LSTM" for n in result.model.graph.node)


def test_code_in_a_file_is_not_run(tmp_path):
    x = keras_2.Input((4,))
    path = tmp_path / "lambda.h5"
    keras_2.Model(x, layers.Lambda(lambda v: v * 2)(x)).save(path)
    with pytest.raises(UnsafeFileError, match="Python code"):
        onnxbridge.convert(path, "onnx")


def test_a_module_in_a_file_is_not_imported(model, tmp_path):
    import h5py

    path = tmp_path / "module.h5"
    model.save(path)
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"][1]["module"] = "os"
        file.attrs["model_config"] = json.dumps(config)
    with pytest.raises(UnsafeFileError):
        onnxbridge.convert(path, "onnx")
