"""Graphs of TensorFlow 1: loops and branches of Switch and Merge, and TensorArrays."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.frontends.tensorflow.compare import agree

v1 = tf.compat.v1
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def _control_flow_v1():
    v1.disable_control_flow_v2()
    yield
    v1.enable_control_flow_v2()


def _graph(build, shape=(None, 3)):
    """A function of the graph that TensorFlow 1 builds, with the results of `build` as its outputs."""
    with tf.Graph().as_default() as graph:
        results = build(v1.placeholder(tf.float32, shape, name="x"))
        names = [tf.identity(r, name=f"y{i}").name for i, r in enumerate(results)]
    definition = graph.as_graph_def()
    assert any(n.op.startswith(("TensorArray", "Merge")) for n in definition.node)
    return v1.wrap_function(lambda: tf.import_graph_def(definition, name=""), []).prune("x:0", names)


def _array(x, **options):
    return tf.TensorArray(tf.float32, tf.shape(x)[0], **options)


def _written(x):
    array = _array(x).write(0, x[0]).write(1, x[1] * 2)
    return array.write(4, x[2]).write(3, x[3]).write(2, x[4])


def _each_row(x):
    rows = _array(x, clear_after_read=False).unstack(x)
    states = (0, tf.zeros([3]), _array(x, element_shape=[3]))

    def body(i, total, sums):
        total = total + rows.read(i)
        return i + 1, total, sums.write(i, total)

    i, total, sums = tf.while_loop(lambda i, *_: i < tf.shape(x)[0], body, states)
    return i, total, sums.stack()


def _loop_in_a_branch(x):
    def body(i, y):
        return i + 1, tf.cond(y[0, 0] > 0, lambda: y * 2, lambda: y - 1)

    return (tf.cond(tf.reduce_sum(x) > 0, lambda: tf.while_loop(lambda i, y: i < 3, body, (0, x))[1], lambda: -x),)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: (_written(x).stack(), _written(x).read(3), _written(x).gather([4, 0])),
        lambda x: (_array(x).unstack(x).size(), _array(x).unstack(x).concat()),
        lambda x: (_array(x).scatter([2, 0, 1, 4, 3], x).stack(),),
        lambda x: (tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[3]).scatter([2, 0, 1], x[:3]).stack(),),
        lambda x: (tf.TensorArray(tf.float32, 2, element_shape=[2, 3]).split(x[:4], [2, 2]).stack(),),
        _each_row,
        _loop_in_a_branch,
    ],
    ids=["write", "concat", "scatter", "scatter into an empty one", "split", "loop", "loop in a branch"],
)
def test_agrees_with_tensorflow(build):
    agree(_graph(build), None, {"x": X})
    agree(_graph(build), None, {"x": -X})
