"""Control flow."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.errors import Unsupported


def _of_tensors(values):
    if not all(isinstance(v, tf.Tensor) for v in values):
        raise Unsupported("a sequence or an optional value through control flow")
    return tuple(tf.identity(v) for v in values)


@rule("If")
def if_(cond, *, then_branch, else_branch):
    cond = tf.reshape(cond, [])
    return tuple(tf.cond(cond, lambda: _of_tensors(then_branch()), lambda: _of_tensors(else_branch())))


def _loose(value):
    """Only its rank stays the same from turn to turn."""
    return tf.TensorShape([None] * value.shape.rank) if value.shape.rank is not None else tf.TensorShape(None)


@rule("Loop")
def loop(M, cond, *v_initial, body):
    states = _of_tensors(v_initial)
    limit = tf.constant(tf.int64.max, tf.int64) if M is None else tf.reshape(M, [])
    going = tf.constant(True) if cond is None else tf.reshape(cond, [])
    dtypes = _scan_dtypes(body, states)
    arrays = tuple(tf.TensorArray(d, 0, dynamic_size=True, infer_shape=False) for d in dtypes)

    def step(turn, going, states, arrays):
        results = body(turn, going, *states)
        scans = results[1 + len(states) :]
        arrays = tuple(a.write(tf.cast(turn, tf.int32), s) for a, s in zip(arrays, scans, strict=True))
        return turn + 1, tf.reshape(results[0], []), _of_tensors(results[1 : 1 + len(states)]), arrays

    def goes_on(turn, going, states, arrays):
        return going & (turn < limit)

    shapes = (tf.TensorShape([]), tf.TensorShape([]), tuple(map(_loose, states)), tuple(tf.TensorShape(None) for _ in arrays))
    start = (tf.constant(0, tf.int64), going, states, arrays)
    _, _, states, arrays = tf.while_loop(goes_on, step, start, shape_invariants=shapes)
    return (*states, *(_stacked(a) for a in arrays))


def _stacked(array):
    return array.stack()


def _scan_dtypes(body, states):
    """The types of what the body collects, from tracing it once into a graph that is thrown away."""
    found = []

    def trace(turn, going, *states):
        results = body(turn, going, *states)
        found.extend(r.dtype for r in results[1 + len(states) :])
        return turn

    graph = tf.Graph()
    specs = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *(tf.TensorSpec(_loose(s), s.dtype) for s in states)]
    del graph
    tf.function(trace, input_signature=specs, autograph=False).get_concrete_function()
    return found
