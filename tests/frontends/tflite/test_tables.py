"""Lookup tables that TensorFlow's converter writes, whose contents another graph of the file puts in."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
import tensorflow as tf

from onnxbridge.errors import ConversionError
from tests.frontends.tflite.build import G, Op, T, model
from tests.frontends.tflite.compare import agree, hub_of, saved

WORDS, NUMBERS = ["a", "b", "cc", "\u00e9t\u00e9"], np.array([7, 5, 3, 9], np.int64)


class Lookup(tf.Module):
    def __init__(self, keys, values, default):
        contents = tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values))
        self.table = tf.lookup.StaticHashTable(contents, default)

    @tf.function
    def __call__(self, x):
        return {"found": self.table.lookup(x), "size": self.table.size()}


@pytest.mark.parametrize("keys, values, default, x", [
    (WORDS, NUMBERS, -1, np.array([["b", "zz"], ["\u00e9t\u00e9", ""]], object)),
    (NUMBERS, WORDS, "?", np.array([[5, 7], [1, 9]], np.int64)),
])  # fmt: skip
def test_lookup(tmp_path, keys, values, default, x):
    lookup = Lookup(keys, values, default)
    traced = lookup.__call__.get_concrete_function(tf.TensorSpec(x.shape, tf.as_dtype(x.dtype), name="x"))
    source = saved(tmp_path, tf.lite.TFLiteConverter.from_concrete_functions([traced], lookup).convert())
    (name,) = (v.name for v in hub_of(source).graph.inputs)
    agree(source, {name: x})


def test_a_table_without_contents_is_refused(tmp_path):
    table, found = T(type="RESOURCE", shape=(1,)), T(type="INT64", shape=())
    options = {"table_id": 3, "key_dtype": "STRING", "value_dtype": "INT64"}
    source = saved(tmp_path, model(G([], [found], [
        Op("HASHTABLE", [], [table], "HashtableOptions", options), Op("HASHTABLE_SIZE", [table], [found], "HashtableSizeOptions"),
    ])))  # fmt: skip
    with pytest.raises(ConversionError, match="a lookup table, whose contents are not in the file"):
        hub_of(source)
