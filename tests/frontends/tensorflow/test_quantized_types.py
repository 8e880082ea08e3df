"""Operators of TensorFlow's quantized types, which are stored as integers."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.frontends.tensorflow.compare import agree

TYPES = {"quint8": np.uint8, "qint8": np.int8, "quint16": np.uint16, "qint16": np.int16}
MODES = ["MIN_COMBINED", "MIN_FIRST", "SCALED"]
ONEDNN = os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
RANGES = [(-1.3, 2.7), (0.0, 6.0), (-4.0, 0.0), (0.5, 0.5)]


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TYPES)
def test_dequantize(name, mode, bounds):
    stored = TYPES[name]
    info = np.iinfo(stored)
    x = np.linspace(info.min, info.max, 24).astype(stored).reshape(2, 3, 4)

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 4], stored, name="x")])
    def fixed(x):
        return tf.raw_ops.Dequantize(input=tf.bitcast(x, name), min_range=bounds[0], max_range=bounds[1], mode=mode)

    agree(fixed, feeds={"x": x})
    if mode != "MIN_FIRST":
        low, high = np.array([bounds[0], -2, -1], np.float32), np.array([bounds[1], 2, 3], np.float32)

        @tf.function(input_signature=[tf.TensorSpec([None, 3, 4], stored, name="x")])
        def channels(x):
            return tf.raw_ops.Dequantize(input=tf.bitcast(x, name), min_range=low, max_range=high, mode=mode, axis=1)

        agree(channels, feeds={"x": x})


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TYPES)
def test_quantize(name, mode, bounds):
    if ONEDNN and np.dtype(TYPES[name]).itemsize == 1 and mode != "MIN_COMBINED":
        pytest.skip("oneDNN's kernels of 8 bits round otherwise: the next test runs without them")
    x = np.random.default_rng(0).normal(scale=3, size=(2, 3, 40)).astype(np.float32)
    more = {"round_mode": "HALF_TO_EVEN"} if mode == "SCALED" else {}

    number = tf.TensorSpec([])

    @tf.function(input_signature=[tf.TensorSpec([None, 3, 40]), number, number])
    def quantized(x, low, high):
        q, least, most = tf.raw_ops.QuantizeV2(input=x, min_range=low, max_range=high, T=name, mode=mode, **more)
        return tf.bitcast(q, TYPES[name]), least, most

    agree(quantized, feeds={"x": x, "low": np.array(bounds[0], np.float32), "high": np.array(bounds[1], np.float32)})


@pytest.mark.skipif(not ONEDNN, reason="without oneDNN, the tests before run")
def test_8_bits_without_onednn():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "test_quantize and int8"]
    subprocess.run(command, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}, check=True)


@pytest.mark.parametrize("content", [True, False])
def test_weights_that_are_stored_as_quantized_values(content):
    """As TensorFlow 1 stored them for phones."""
    weights = np.random.default_rng(0).integers(0, 256, (5, 4)).astype(np.uint8)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 5], name="x")
        stored = tf.constant(weights.astype(np.int32), name="w")
        dequantized = tf.raw_ops.Dequantize(
            input=tf.cast(stored, tf.quint8), min_range=-1.0, max_range=1.5, mode="MIN_FIRST", name="dequantized"
        )
        tf.matmul(x, dequantized, name="y")
    definition = graph.as_graph_def()
    (node,) = (n for n in definition.node if n.name == "w")
    (cast,) = (n for n in definition.node if n.op == "Cast")
    proto = tf.make_tensor_proto(weights) if content else tf.compat.v1.make_tensor_proto(weights.astype(np.int32))
    proto.dtype = tf.quint8.as_datatype_enum
    if not content:
        proto.ClearField("tensor_content")
        proto.int_val.extend(int(v) for v in weights.reshape(-1))
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)
    definition.node.remove(cast)
    (reader,) = (n for n in definition.node if n.name == "dequantized")
    reader.input[0] = "w"
    assert [n.op_type for n in agree(definition, feeds={"x": np.ones((2, 5), np.float32)}).graph] == ["MatMul"]
