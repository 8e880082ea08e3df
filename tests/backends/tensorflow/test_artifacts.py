"""The files that TensorFlow's users have: each is written, opened by TensorFlow's own means, and computes the same."""

from __future__ import annotations

import keras
import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf
from onnx import numpy_helper, parser

import onnxbridge
from onnxbridge.backends.tensorflow import backend
from onnxbridge.errors import ConversionError, UsageError
from onnxbridge.hub.builder.builder import Builder
from tests.backends.small_networks import image_classifier, images


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A Keras model, whose layers are saved and converted back."""
    keras.utils.set_random_seed(0)
    layers, inputs = keras.layers, keras.Input((None, None, 3), name="image")
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", activation="relu")(inputs))
    x = layers.GlobalAveragePooling2D()(layers.DepthwiseConv2D(3, strides=2, padding="same", activation="gelu")(x))
    model = keras.Model(inputs, layers.Dense(5, name="logits")(x * 2.0 + x[:, :1]))
    return model, onnxbridge.convert(model, to="onnx", verify=False).model


def _saved(net, path, **options):
    made = onnxbridge.convert(net, to="tensorflow", output=path, **options)
    assert made.report.agrees
    return made


def _inputs():
    return np.random.default_rng(3).normal(size=(2, 9, 10, 3)).astype(np.float32)


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_keras_files(net, tmp_path, suffix):
    source, onnx = net
    path = tmp_path / f"net{suffix}"
    _saved(onnx, path)
    loaded = keras.models.load_model(path)
    x = _inputs()
    np.testing.assert_allclose(loaded(x), source(x), rtol=1e-4, atol=1e-5)
    kinds = [type(layer).__name__ for layer in loaded.layers]
    assert {"Conv2D", "BatchNormalization", "DepthwiseConv2D", "Dense"} <= set(kinds)
    loaded.compile("adam", "mse")
    first, *_, last = loaded.fit(x, np.ones((2, 5), np.float32), epochs=5, verbose=0).history["loss"]
    assert last < first


def test_saved_models_are_callable_and_can_be_trained(net, tmp_path):
    source, onnx = net
    _saved(onnx, tmp_path / "net")
    loaded, x = tf.saved_model.load(str(tmp_path / "net")), tf.constant(_inputs())
    assert list(loaded.signatures) == ["serving_default"]
    np.testing.assert_allclose(loaded(x), source(x), rtol=1e-4, atol=1e-5)
    assert len(loaded.trainable_variables) == len(source.trainable_variables)
    assert len(loaded.non_trainable_variables) == len(source.non_trainable_variables)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(loaded(x) ** 2)
    assert all(g is not None for g in tape.gradient(loss, loaded.trainable_variables))


def test_frozen_graphs_have_the_names_of_inputs_and_outputs(net, tmp_path):
    source, onnx = net
    _saved(onnx, tmp_path / "net.pb")
    definition = tf.compat.v1.GraphDef.FromString((tmp_path / "net.pb").read_bytes())
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(definition, name="")
        found = session.run("logits:0", {"image:0": _inputs()})
    np.testing.assert_allclose(found, source(_inputs()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("quantize", "off"), [(None, 1e-5), ("float16", 2e-3), ("dynamic", 3e-2)])
def test_lite_models(net, tmp_path, quantize, off):
    source, onnx = net
    _saved(onnx, tmp_path / "net.tflite", **({} if quantize is None else {"quantize": quantize}))
    run = tf.lite.Interpreter(str(tmp_path / "net.tflite")).get_signature_runner("serving_default")
    expected = source(_inputs())
    np.testing.assert_allclose(run(image=_inputs())["logits"], expected, rtol=0, atol=off * float(np.ptp(expected)))


def test_recurrent_layers_of_lite_models_have_no_loop(tmp_path):
    inputs = keras.Input((6, 4), name="x")
    source = keras.Model(inputs, keras.layers.LSTM(3, name="rows")(inputs))
    made = _saved(source, tmp_path / "net.tflite")
    assert made.model.layers[1].unroll


def test_int8_models_compute_in_int8(net, tmp_path):
    samples = [{"image": np.random.default_rng(i).normal(size=(1, 9, 10, 3)).astype(np.float32)} for i in range(8)]
    np.savez(tmp_path / "samples.npz", image=np.concatenate([s["image"] for s in samples]))
    for i, calibration in enumerate((samples, tmp_path / "samples.npz")):
        path = tmp_path / f"net{i}.tflite"
        _saved(net[1], path, quantize="int8", calibration=calibration, data=samples, max_drift=0.5)
        interpreter = tf.lite.Interpreter(str(path))
        kinds = {d["name"]: d["dtype"] for d in interpreter.get_tensor_details()}
        assert sum(kind is np.int8 for kind in kinds.values()) > 8
        assert [d["dtype"] for d in interpreter.get_input_details()] == [np.float32]


@pytest.mark.parametrize("options", [
    {"quantize": "int8"}, {"quantize": "float16", "output": "net.keras"}, {"calibration": [{}]}, {"layout": ["x:nhcw"]},
    {"output": "net.pbtxt"}, {"output": "net.ckpt"},
])  # fmt: skip
def test_wrong_options_are_refused_before_any_work(options, tmp_path):
    output = tmp_path / options.pop("output", "net.tflite")
    with pytest.raises(UsageError):
        onnxbridge.convert(tmp_path / "no such file.onnx", to="tensorflow", output=output, **options)


def test_models_that_keras_cannot_hold_are_no_keras_files(tmp_path):
    op = Builder()
    x = op.input("x", ir.DataType.FLOAT, [4])
    model = op.model([x], [op.output(op.SplitToSequence(x, np.array([2, 2])), "parts")])
    with pytest.raises(ConversionError, match="SavedModel"):
        onnxbridge.convert(model, to="tensorflow", output=tmp_path / "net.keras", verify=False)


def test_calls_of_keras_functions_are_not_written_into_h5_files(net, tmp_path):
    made = onnxbridge.convert(net[1], to="tensorflow")
    made.save(tmp_path / "net.keras")
    with pytest.raises(ConversionError, match="output="):
        made.save(tmp_path / "net.h5")


@pytest.mark.parametrize("layout", [["nhwc"], ["image:nhwc"], "nhwc"])
def test_layout_of_images(layout, tmp_path):
    hub = image_classifier()
    made = onnxbridge.convert(hub, to="tensorflow", layout=layout)
    assert made.report.agrees
    assert made.model.inputs[0].shape[-1] == 3
    kinds = [type(o).__name__ for o in made.model.operations]
    assert kinds[1] == "Conv2D"
    assert kinds[-3:] == ["Permute", "Reshape", "Dense"]  # of the elements that a linear layer reads in their order
    x = images(2)
    expected = backend.runner(backend.from_hub(hub))({"image": x})["logits"]
    np.testing.assert_allclose(made.model(x.transpose(0, 2, 3, 1)), expected, rtol=1e-5, atol=1e-5)


def test_layout_of_a_keras_model_with_channels_second(net):
    made = onnxbridge.convert(net[1], to="tensorflow", layout="nchw")
    x = _inputs()
    np.testing.assert_allclose(made.model(x.transpose(0, 3, 1, 2)), net[0](x), rtol=1e-4, atol=1e-5)
    assert "image" in made.notes[0]


def test_names_that_tensorflow_does_not_allow(tmp_path):
    text = '<ir_version: 10, opset_import: ["": 23]> g (float[N,3] x) => (float[N,3] y) { y = Mod<fmod=1>(x, w) }'
    model, weight = parser.parse_model(text), numpy_helper.from_array(np.array([1, 0.5, 0.75], np.float32), "scale;a/scale;é:0.t")
    model.graph.node[0].input[1] = weight.name
    model.graph.initializer.append(weight)
    made = _saved(model, tmp_path / "net")
    assert made.model.weights_by_name.keys() == {weight.name}
