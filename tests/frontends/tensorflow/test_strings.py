"""Strings of TensorFlow models: constants, captured tensors, variables and outputs are `str` in the hub, not bytes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import tensorflow as tf

import onnxbridge
from onnxbridge import plugins
from onnxbridge.errors import ConversionError
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.hub.ir.schemas import array_of
from tests.frontends.tensorflow.compare import agree, hub_of, run

WORDS = np.array(["yes", "no", "Grüße", "", "b'yes'"], dtype=object)


def _spec(*shape, dtype=tf.string):
    return tf.TensorSpec(shape, dtype, name="s")


def _function(call, *specs):
    return tf.function(call, autograph=False).get_concrete_function(*(specs or [_spec(5)]))


def _string_constants(model: ir.Model) -> set[str]:
    found = [v.const_value for v in model.graph.initializers.values() if v.dtype == ir.DataType.STRING]
    return {t for tensor in found for t in array_of(tensor).reshape(-1).tolist()}


@pytest.mark.parametrize(
    "words", ["yes", "Grüße", ["yes", "no", "no", "", "x"], ["Grüße"]], ids=["scalar", "umlaut", "vector", "one"]
)
def test_string_constants(words):
    source = _function(lambda s: tf.equal(s, tf.constant(words)))
    hub = hub_of(source)
    assert _string_constants(hub) == set(np.ravel(words).tolist())
    expected = np.array(words, dtype=object) == WORDS
    assert expected.any()
    np.testing.assert_array_equal(run(hub, {"s": WORDS})[0], expected)
    np.testing.assert_array_equal(frontend.runner(source)({"s": WORDS})["output_0"], expected)


def test_captured_string_tensors_and_variables():
    table = tf.constant(["cat", "dog", "Käfer"])
    one = tf.constant("!")
    variable = tf.Variable(["dog", "cat", "cat"])

    def call(i):
        return tf.gather(table, i), tf.gather(variable, i), tf.fill([2], one)

    source = _function(call, _spec(2, dtype=tf.int32))
    feeds = {"s": np.array([2, 0], np.int32)}
    got = run(hub_of(source), feeds)
    for g, w in zip(got, (["Käfer", "cat"], ["cat", "dog"], ["!", "!"]), strict=True):
        assert g.tolist() == w
    for g, w in zip(got, frontend.runner(source)(feeds).values(), strict=True):
        assert g.tolist() == w.tolist()


def test_trailing_null_characters():
    hub = hub_of(_function(lambda s: tf.equal(s, tf.constant("a\0"))))
    assert _string_constants(hub) == {"a\0"}


def test_invalid_utf8_is_rejected():
    with pytest.raises(ConversionError, match="not valid UTF-8"):
        hub_of(_function(lambda s: tf.equal(s, tf.constant(b"\xff\xfe"))))


def test_strings_of_a_saved_model(tmp_path):
    module = tf.Module()
    module.words = tf.Variable(["up", "down"])
    module.f = tf.function(
        lambda s: {"hit": tf.equal(s, "up"), "word": tf.where(tf.equal(s, module.words), "same", s)},
        input_signature=[_spec(2)], autograph=False,
    )  # fmt: skip
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.f)
    hub = hub_of(tmp_path / "m")
    feeds = {"s": np.array(["up", "up"], dtype=object)}
    got = dict(zip((v.name for v in hub.graph.outputs), run(hub, feeds), strict=True))
    assert got["hit"].tolist() == [True, True] and got["word"].tolist() == ["same", "up"]


@pytest.mark.parametrize("target", ["tensorflow", "pytorch"])
def test_strings_in_other_targets(target):
    source = _function(lambda s: (tf.equal(s, "yes"), tf.constant(["nein", "Grüße"])))
    found = onnxbridge.convert(source, to=target)
    assert found.report.passed
    hit, words = plugins.backend(target).runner(found.artifact)({"s": WORDS}).values()
    assert hit.tolist() == [True, False, False, False, False]
    assert np.asarray(words).tolist() == ["nein", "Grüße"]


def test_string_tensors_as_example_inputs():
    function = tf.function(lambda s: tf.equal(s, "yes"), autograph=False)
    found = onnxbridge.convert(function, to="onnx", inputs=[tf.constant(WORDS)])
    assert found.report.passed


def test_operators_without_a_rule_say_why():
    @tf.function
    def hashed(x):
        return tf.strings.to_hash_bucket_fast(x, 10)

    with pytest.raises(ConversionError, match="StringToHashBucketFast x1: ONNX has no such hash of strings") as error:
        frontend.to_hub(hashed, (tf.TensorSpec([3], tf.string),))
    assert "hint: use a table of words" in str(error.value)


@tf.function(input_signature=[_spec(None)])
def _array_of_words(words):
    found = tf.TensorArray(tf.string, size=0, dynamic_size=True)
    for i in tf.range(tf.shape(words)[0]):
        found = found.write(i, words[i] + "?")
    return found.stack()


@tf.function(input_signature=[_spec(None)])
def _sum_of_words(words):
    found = tf.constant("")
    for i in tf.range(tf.shape(words)[0]):
        found = found + words[i]
    return found


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: tf.map_fn(lambda s: tf.strings.join([s, "!"]), x), (None,)),
        (lambda x: tf.map_fn(tf.strings.lower, x), (None, 2)),
        (lambda x: tf.map_fn(lambda s: s + s[::-1], x), (2, 2)),
        (lambda x: tf.scan(lambda a, s: tf.strings.join([a, s]), x), (None,)),
        (_array_of_words, None),
        (_sum_of_words, None),
    ],
)
def test_lists_and_loops_of_strings(function, shape):
    made = function if shape is None else tf.function(function, input_signature=[_spec(*shape)])
    words = np.array(["A", "bC", "", "d"], object)
    name = hub_of(made).graph.inputs[0].name
    agree(made, feeds={name: words if shape in (None, (None,)) else words.reshape(2, 2)})
