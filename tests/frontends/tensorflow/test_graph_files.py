"""Frozen graphs, as files and objects, and graphs with their checkpoint."""

from __future__ import annotations

import keras
import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

import onnxbridge
from onnxbridge.cli import group
from onnxbridge.errors import UnsafeFileError, UsageError

tf = pytest.importorskip("tensorflow")
v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype(np.float32)


def run(proto, *arrays):
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip((i.name for i in session.get_inputs()), arrays, strict=True)))


@pytest.fixture(scope="module")
def frozen():
    """A model and the graph that its function is frozen to."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    keras.utils.set_random_seed(0)
    x = keras.Input((8, 8, 3), name="image")
    model = keras.Model(x, keras.layers.Dense(4)(keras.layers.Flatten()(keras.layers.Conv2D(5, 3, activation="relu")(x))))
    spec = tf.TensorSpec([None, 8, 8, 3], tf.float32, name="image")
    function = tf.function(lambda image: model(image)).get_concrete_function(spec)
    return model, convert_variables_to_constants_v2(function).graph


@pytest.mark.parametrize("name", ["net.pb", "net.pbtxt", "net.anything"])
def test_frozen_graph_file(frozen, tmp_path, name):
    model, graph = frozen
    tf.io.write_graph(graph, str(tmp_path), name, as_text=name.endswith("txt"))
    result = onnxbridge.convert(tmp_path / name, "onnx")
    assert result.report.passed and [i.name for i in result.model.graph.input] == ["image"]
    np.testing.assert_allclose(run(result.model, X)[0], model(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("as_definition", [True, False], ids=["GraphDef", "Graph"])
def test_live_graph(frozen, as_definition):
    model, graph = frozen
    result = onnxbridge.convert(graph.as_graph_def() if as_definition else graph, "onnx")
    assert result.report.passed
    np.testing.assert_allclose(run(result.model, X)[0], model(X), rtol=1e-4, atol=1e-5)


def test_sizes_of_placeholders_can_be_given(frozen):
    _, graph = frozen
    model = onnxbridge.convert(graph.as_graph_def(), "onnx", inputs={"image": tf.TensorSpec((1, 8, 8, 3))}).model
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 8, 8, 3]


def save_checkpoint(folder):
    """A graph of TensorFlow 1 with variables and two results, saved with its values; returns the values."""
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        with v1.variable_scope("layer"):
            w = v1.get_variable("w", [4, 3], initializer=v1.random_normal_initializer(seed=0))
            b = v1.get_variable("b", [3], initializer=v1.random_normal_initializer(seed=1), use_resource=False)
        tf.nn.softmax(tf.matmul(x, w) + b, name="probabilities")
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(folder / "model"))
        return session.run([w, b])


def test_meta_file_with_its_checkpoint(tmp_path):
    w, b = save_checkpoint(tmp_path)
    result = onnxbridge.convert(tmp_path / "model.meta", "onnx")
    assert result.report.passed
    assert {"layer/w", "layer/b"} <= {i.name for i in result.model.graph.initializer}
    assert [(i.name, o.name) for i, o in zip(result.model.graph.input, result.model.graph.output, strict=True)] == [
        ("x", "probabilities")
    ]
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(run(result.model, x)[0], tf.nn.softmax(x @ w + b), rtol=1e-5)


def test_meta_file_without_a_checkpoint(tmp_path):
    save_checkpoint(tmp_path)
    (tmp_path / "model.index").unlink()
    with pytest.raises(UsageError, match="its variables have no values"):
        onnxbridge.convert(tmp_path / "model.meta", "onnx")


def test_inspect_names_the_version(tmp_path):
    save_checkpoint(tmp_path)
    printed = CliRunner().invoke(group, ["inspect", str(tmp_path / "model.meta")])
    assert printed.exit_code == 0 and tf.__version__ in printed.output


def calls_a_function_by_its_name(body):
    """A graph whose operator has the name of a function, as TensorFlow 1's Defun writes it."""
    from tensorflow.python.framework import function

    @function.Defun(tf.float32, func_name="half_of")
    def half_of(x):
        return body(x)

    with v1.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        tf.identity(half_of(x) + 1.0, name="y")
    return graph


def test_a_function_called_by_its_name():
    graph = calls_a_function_by_its_name(lambda x: tf.nn.relu(x) / 2.0)
    assert "half_of" in {op.type for op in graph.get_operations()}
    result = onnxbridge.convert(graph, "onnx")
    assert result.report.passed
    x = np.array([[-1, 2, 4]], np.float32)
    np.testing.assert_array_equal(run(result.model, x)[0], [[1, 2, 3]])


def test_what_a_function_called_by_its_name_may_not_do(tmp_path):
    graph = calls_a_function_by_its_name(lambda x: tf.reshape(tf.strings.to_number(tf.io.read_file("/etc/hostname")), [1, 1]) + x)
    tf.io.write_graph(graph, str(tmp_path), "net.pb", as_text=False)
    for source in (graph, tmp_path / "net.pb"):
        with pytest.raises(UnsafeFileError, match="ReadFile"):
            onnxbridge.convert(source, "onnx")


def test_several_results_must_be_chosen():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [None, 4], name="x")
        tf.nn.relu(x, name="first")
        tf.nn.tanh(x, name="second")
    with pytest.raises(UsageError, match="first.*second"):
        onnxbridge.convert(graph, "onnx")
    result = onnxbridge.convert(graph, "onnx", outputs_at=["second"])
    assert [o.name for o in result.model.graph.output] == ["second"] and result.report.passed


def test_files_that_reach_outside_are_refused(tmp_path):
    with tf.Graph().as_default() as graph:
        tf.io.read_file(v1.placeholder(tf.string, [], name="path"), name="content")
    tf.io.write_graph(graph, str(tmp_path), "reads.pb", as_text=False)
    with pytest.raises(UnsafeFileError, match="ReadFile"):
        onnxbridge.convert(tmp_path / "reads.pb", "onnx")


def test_damaged_files_are_refused(frozen, tmp_path):
    path = tmp_path / "net.pb"
    path.write_bytes(frozen[1].as_graph_def().SerializeToString()[:-7])
    with pytest.raises(UnsafeFileError, match="damaged"):
        onnxbridge.convert(path, "onnx")


def test_a_number_that_the_text_format_does_not_have_is_refused(tmp_path):
    path = tmp_path / "net.pbtxt"
    path.write_text('node { name: "x" op: "Placeholder" } versions { producer: 99999999999999999999 }')
    with pytest.raises(UnsafeFileError, match="out of range"):
        onnxbridge.load(path)
