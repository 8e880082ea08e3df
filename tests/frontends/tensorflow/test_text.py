"""Text models: lookup tables, strings in sentences, ragged rows and embeddings; operators of onnxruntime-extensions."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import onnxbridge
from onnxbridge.errors import ConversionError, UnsafeFileError
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.frontends.tensorflow.literal_patterns import literals_of
from tests.frontends.tensorflow.compare import agree, hub_of

WORDS = ["the", "cat", "sat", "käse"]
TEXTS = np.array(["The cat, sat!", "Käse. KÄSE käse dog", "the  the\tTHE"], dtype=object)


def _table(keys=WORDS, values=(3, 0, 7, 2), default=-1, dtype=tf.int64):
    made = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values, dtype))
    return tf.lookup.StaticHashTable(made, tf.constant(default, dtype))


def _concrete(call, *specs):
    return tf.function(call, autograph=False).get_concrete_function(*specs)


@pytest.mark.parametrize(("values", "default", "dtype"), [
    ((3, 0, 7, 2), -1, tf.int64), ((3, 0, 7, 2), -1, tf.int32), ((0.5, 1.5, -2.0, 3.0), 9.0, tf.float32),
    (("α", "b", "", "c"), "?", tf.string), ((0.5, 1.5, -2.0, 3.0), 9.0, tf.float64),
])  # fmt: skip
def test_table_lookup(values, default, dtype):
    table = _table(values=values, default=default, dtype=dtype)
    source = _concrete(lambda s: table.lookup(s), tf.TensorSpec([None, 3], tf.string, name="s"))
    feeds = {"s": np.array([["the", "dog", "käse"], ["", "sat", "THE"]], dtype=object)}
    found = agree(source, None, feeds)
    assert "LabelEncoder" in [n.op_type for n in found.graph]


def test_table_with_numbers_as_keys():
    table = _table(keys=tf.constant([5, -7, 2**40], tf.int64), values=("a", "é", "c"), default="?", dtype=tf.string)
    source = _concrete(lambda s: table.lookup(s), tf.TensorSpec([4], tf.int64, name="s"))
    agree(source, None, {"s": np.array([2**40, 1, -7, 5], np.int64)})


def test_table_of_rows_size_and_contents():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, tf.constant([9.0, 8.0]))
    table.insert(tf.constant(["a", "b"]), tf.constant([[1.0, 2.0], [3.0, 4.0]]))
    source = _concrete(lambda s: (table.lookup(s), table.size()), tf.TensorSpec([3], tf.string, name="s"))
    agree(source, None, {"s": np.array(["b", "x", "a"], dtype=object)})


def test_empty_table():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, tf.constant(-5, tf.int64))
    agree(_concrete(lambda s: table.lookup(s), tf.TensorSpec([2], tf.string, name="s")), None, {"s": TEXTS[:2]})


def test_insertion_is_refused():
    table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, tf.constant(-5, tf.int64))

    def call(s):
        with tf.control_dependencies([table.insert(s, tf.constant([1, 2], tf.int64))]):
            return table.size()

    with pytest.raises(ConversionError, match="LookupTableInsertV2"):
        hub_of(_concrete(call, tf.TensorSpec([2], tf.string, name="s")))


class Text(tf.Module):
    """Strings in, lower case, punctuation off, split, looked up, embedded and averaged."""

    def __init__(self, vocabulary=None):
        super().__init__()
        index = tf.lookup.TextFileIndex
        made = tf.lookup.KeyValueTensorInitializer(WORDS, tf.range(4, dtype=tf.int64)) if vocabulary is None else (
            tf.lookup.TextFileInitializer(vocabulary, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
        )  # fmt: skip
        self.table = tf.lookup.StaticHashTable(made, -1)
        self.embedding = tf.Variable(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), name="embedding")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")], autograph=False)
    def __call__(self, text):
        words = tf.strings.split(tf.strings.regex_replace(tf.strings.lower(text), "[!,.?]", ""))
        ids = self.table.lookup(words.flat_values) + 1
        rows = words.with_flat_values(tf.gather(self.embedding, ids))
        return {"mean": tf.reduce_mean(rows, axis=1), "ids": words.with_flat_values(ids).to_tensor(-1)}


def _saved(tmp_path, vocabulary=None):
    module = Text(vocabulary)
    tf.saved_model.save(module, str(tmp_path / "text"), signatures=module.__call__)
    return tmp_path / "text"


def _vocabulary(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    return str(path)


def test_text_model():
    agree(Text(), None, {"text": TEXTS})
    result = onnxbridge.convert(Text(), to="onnx")
    assert result.report.passed
    assert {p.name for p in result.hub.graph.inputs} == {"text"}


def test_text_model_with_a_vocabulary_among_the_assets(tmp_path):
    path = _saved(tmp_path, _vocabulary(tmp_path))
    os.remove(tmp_path / "words.txt")
    agree(str(path), None, {"text": TEXTS})


@pytest.mark.parametrize("name", ["/etc/passwd", "../../outside.txt", "a/../../outside.txt"])
def test_assets_outside_of_the_folder_are_refused(tmp_path, name):
    path = _saved(tmp_path, _vocabulary(tmp_path))
    _rewrite(path, lambda meta: setattr(meta.asset_file_def[0], "filename", name))
    with pytest.raises(UnsafeFileError, match="InitializeTableFromTextFileV2"):
        frontend.to_hub(str(path))


def test_a_file_name_that_is_no_asset_is_refused(tmp_path):
    path = _saved(tmp_path, _vocabulary(tmp_path))

    def change(meta):
        """The initializer reads a constant's file instead of the asset."""
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                if node.op == "InitializeTableFromTextFileV2":
                    constant = function.node_def.add(name="path", op="Const")
                    constant.attr["dtype"].type = tf.string.as_datatype_enum
                    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto("/etc/passwd"))
                    node.input[1] = "path:output:0"

    _rewrite(path, change)
    with pytest.raises(UnsafeFileError, match="InitializeTableFromTextFileV2"):
        frontend.to_hub(str(path))


def test_a_file_name_from_a_variable_is_refused(tmp_path):
    path = _saved(tmp_path, _vocabulary(tmp_path))

    def change(meta):
        for name, function in meta.object_graph_def.concrete_functions.items():
            if "initializer" in name:
                function.bound_inputs[0] = function.bound_inputs[1]

    _rewrite(path, change)
    with pytest.raises(UnsafeFileError, match="InitializeTableFromTextFileV2"):
        frontend.to_hub(str(path))


def _rewrite(path, change):
    found = saved_model_pb2.SavedModel()
    found.ParseFromString((path / "saved_model.pb").read_bytes())
    change(found.meta_graphs[0])
    (path / "saved_model.pb").write_bytes(found.SerializeToString())


def test_everything_that_onnx_cannot_say_is_listed_at_once():
    def call(s):
        text = tf.strings.strip(tf.strings.lower(s, encoding="utf-8"))
        ids = tf.strings.to_hash_bucket_fast(text, 10)
        return ids, tf.strings.length(s), tf.strings.unicode_decode(s, "UTF-8").flat_values

    with pytest.raises(ConversionError) as raised:
        hub_of(_concrete(call, tf.TensorSpec([2], tf.string, name="s")))
    found = {p.op: p for p in raised.value.problems}
    assert set(found) >= {"StringLower", "StringToHashBucketFast", "StringLength", "UnicodeDecode"}
    assert "--allow-domain ai.onnx.contrib" in found["StringLength"].hint
    assert all(p.locations[0].file.endswith("test_text.py") for p in raised.value.problems)


@pytest.mark.parametrize(("call", "count"), [
    (lambda s: tf.strings.strip(s), 1), (lambda s: tf.strings.length(s), 4), (lambda s: tf.strings.length(s, "UTF8_CHAR"), 1),
    (lambda s: tf.strings.substr(s, 1, 3, "UTF8_CHAR"), 1), (lambda s: tf.strings.substr(s, -2, 5), 1),
    (lambda s: tf.strings.regex_replace(s, "[a-z]+", "x"), 1),
])  # fmt: skip
def test_operators_of_onnxruntime_extensions(call, count):
    source = _concrete(call, tf.TensorSpec([None], tf.string, name="s"))
    model = frontend.to_hub(source, allow_domain=["ai.onnx.contrib"])
    assert [n.domain for n in model.graph].count("ai.onnx.contrib") == count
    assert model.opset_imports["ai.onnx.contrib"] == 1


def test_operators_of_onnxruntime_extensions_compute_what_tensorflow_computes():
    """In a process of its own: its regular expressions do not work where TensorFlow was imported before."""
    pytest.importorskip("onnxruntime_extensions")
    code = """
import onnxruntime_extensions
import numpy as np, tensorflow as tf
from onnxbridge.frontends.tensorflow import frontend
from onnxbridge.runtime import devices
texts = np.array(["Hello, World", "  a b\\t", "\\x0b\\n", "", "aé♠𝄞 xyz", "0123456789" * 20], dtype=object)
calls = [tf.strings.strip, tf.strings.length, lambda s: tf.strings.length(s, "UTF8_CHAR"),
         lambda s: tf.strings.regex_replace(s, "([a-z]+) ", r"<\\\\1>"), lambda s: tf.strings.regex_replace(s, "[a-c]", "")]
long = [lambda s: tf.strings.substr(s, 1, 3, "UTF8_CHAR"), lambda s: tf.strings.substr(s, -2, 5),
        lambda s: tf.strings.substr(s, 2, 9)]
for call in calls + long:
    source = tf.function(call).get_concrete_function(tf.TensorSpec([None], tf.string, name="s"))
    hub = frontend.to_hub(source, allow_domain=["ai.onnx.contrib"])
    feeds = {"s": texts if call in calls else texts[[0, 1, 5]]}
    (got,), (want,) = devices.session(hub).run(None, feeds), frontend.runner(source)(feeds).values()
    assert got.tolist() == want.tolist(), (got, want)
print("agreed")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "agreed", ran.stderr


@pytest.mark.parametrize(("pattern", "found"), [
    ("abc", ["abc"]), (r"a\.b", ["a.b"]), (r"[a-c!]", ["a", "b", "c", "!"]), (r"[,-\.]", [",", "-", "."]),
    (r"[\t\]]", ["\t", "]"]),
    ("[^a]", None), ("a*", None), (r"\d", None), ("a|b", None), ("", None), ("[é]", None), (r"[[:alpha:]]", None), ("(a)", None),
])  # fmt: skip
def test_patterns_that_are_literal(pattern, found):
    assert literals_of(pattern) == found
