"""What users select of a source: signatures, tensors where a graph is cut, layouts and names."""

from __future__ import annotations

import keras
import numpy as np
import onnxruntime
import pytest

import onnxbridge
from onnxbridge.errors import UsageError

tf = pytest.importorskip("tensorflow")
X = np.random.default_rng(0).normal(size=(2, 6, 7, 3)).astype(np.float32)


def run(proto, *arrays):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), arrays, strict=True)))


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    x = keras.Input((6, 7, 3), name="image")
    h = keras.layers.Conv2D(4, 3, name="conv", activation="relu")(x)
    return keras.Model(x, {"features": h, "scores": keras.layers.Dense(2)(keras.layers.GlobalAveragePooling2D()(h))})


def sizes(values):
    return {v.name: [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in values}


class Two(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def double(self, x):
        return {"y": x * 2}

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="x")])
    def square(self, x):
        return {"y": x * x}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "two"
    module = Two()
    tf.saved_model.save(module, str(path), signatures={"double": module.double, "square": module.square})
    return path


def test_signature_is_selected(folder):
    x = np.array([[1, 2, 3]], np.float32)
    for name, expected in (("double", x * 2), ("square", x * x)):
        result = onnxbridge.convert(folder, "onnx", signature=name)
        assert result.report.passed
        np.testing.assert_array_equal(run(result.model, x)[0], expected)


def test_choices_are_listed(folder):
    for wrong in ({"signature": "half"}, {}):
        with pytest.raises(UsageError, match="double, square"):
            onnxbridge.convert(folder, "onnx", **wrong)


def test_inputs_and_outputs_in_nchw(model):
    result = onnxbridge.convert(model, "onnx", layout=["image:nchw", "features:nchw"])
    assert result.report.passed
    assert sizes(result.model.graph.input)["image"][1:] == [3, 6, 7]
    assert sizes(result.model.graph.output)["features"][1:] == [4, 4, 5]
    assert not any(n.op_type == "Transpose" for n in result.model.graph.node), "convolutions are NCHW"
    expected = model(X)
    names = [o.name for o in result.model.graph.output]
    found = dict(zip(names, run(result.model, X.transpose(0, 3, 1, 2)), strict=True))
    np.testing.assert_allclose(found["features"].transpose(0, 2, 3, 1), expected["features"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-4, atol=1e-5)


def test_options_of_tf2onnx(model):
    result = onnxbridge.convert(model, "onnx", inputs_as_nchw=["image"], outputs_as_nchw=["features"])
    assert sizes(result.model.graph.input)["image"][1:] == [3, 6, 7] and result.report.passed


@pytest.mark.parametrize("layout", [["other:nchw"], ["scores:nchw"], ["image:chwn"]])
def test_layouts_that_do_not_fit(model, layout):
    with pytest.raises(UsageError):
        onnxbridge.convert(model, "onnx", layout=layout)


def test_inputs_and_outputs_are_renamed(model):
    result = onnxbridge.convert(model, "onnx", rename={"image": "pixels", "scores": "logits"})
    assert list(sizes(result.model.graph.input)) == ["pixels"] and "logits" in sizes(result.model.graph.output)
    assert result.report.passed


def test_a_model_is_cut_at_named_tensors(model):
    end = onnxbridge.convert(model, "onnx", outputs_at=["middle=conv/Relu"])
    assert list(sizes(end.model.graph.output)) == ["middle"] and end.report.passed
    np.testing.assert_allclose(run(end.model, X)[0], model(X)["features"], rtol=1e-4, atol=1e-5)


def test_a_frozen_graph_is_cut_on_both_sides():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
        h = tf.nn.relu(x, name="h")
        tf.nn.tanh(tf.identity(h * 2, name="doubled"), name="y")
    result = onnxbridge.convert(graph, "onnx", inputs_at=["h"], outputs_at=["doubled"])
    assert [n.op_type for n in result.model.graph.node if n.op_type != "Identity"] == ["Mul"] and result.report.passed


def test_names_that_do_not_exist(model):
    for options in ({"outputs_at": ["nothing"]}, {"rename": {"nothing": "x"}}):
        with pytest.raises(UsageError, match="nothing"):
            onnxbridge.convert(model, "onnx", **options)
