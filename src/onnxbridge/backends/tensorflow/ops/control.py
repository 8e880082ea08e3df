"""Control flow."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import axis_of, rank, size
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
def loop(M=None, cond=None, *v_initial, body):
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
    """The types of what the body collects, from a trace that is thrown away."""
    found = []

    def trace(turn, going, *states):
        results = body(turn, going, *states)
        found[:] = [r.dtype for r in results[1 + len(states) :]]  # TensorFlow may trace more than once
        return turn

    specs = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *(tf.TensorSpec(_loose(s), s.dtype) for s in states)]
    tf.function(trace, input_signature=specs, autograph=False).get_concrete_function()
    return found


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    given = initial_state_and_scan_inputs
    count = len(given) - num_scan_inputs
    states = _of_tensors(given[:count])
    axes = scan_input_axes or (0,) * num_scan_inputs
    backwards = scan_input_directions or (0,) * num_scan_inputs
    sequences = []
    for s, axis, back in zip(given[count:], axes, backwards, strict=True):
        axis = axis_of(s, axis)
        front = tf.transpose(s, [axis, *(d for d in range(rank(s)) if d != axis)])
        sequences.append(tf.reverse(front, [0]) if back else front)
    probe = tf.function(
        lambda *inputs: tuple(body(*inputs)), autograph=False,
        input_signature=[tf.TensorSpec(s.shape, s.dtype) for s in states]
        + [tf.TensorSpec(s.shape[1:], s.dtype) for s in sequences],
    ).get_concrete_function()  # fmt: skip
    dtypes = [t.dtype for t in probe.outputs[count:]]
    arrays = tuple(tf.TensorArray(d, 0, dynamic_size=True, infer_shape=False) for d in dtypes)

    def step(turn, states, arrays):
        results = body(*states, *(s[turn] for s in sequences))
        arrays = tuple(a.write(turn, r) for a, r in zip(arrays, results[count:], strict=True))
        return turn + 1, _of_tensors(results[:count]), arrays

    length = size(sequences[0], 0)
    shapes = (tf.TensorShape([]), tuple(map(_loose, states)), tuple(tf.TensorShape(None) for _ in arrays))
    start = (tf.constant(0), states, arrays)
    _, states, arrays = tf.while_loop(lambda turn, *_: turn < length, step, start, shape_invariants=shapes)
    joined = []
    out_axes, out_backwards = scan_output_axes or (0,) * len(dtypes), scan_output_directions or (0,) * len(dtypes)
    for array, shape, axis, back in zip(arrays, probe.outputs[count:], out_axes, out_backwards, strict=True):
        stacked = array.stack()
        stacked.set_shape([sequences[0].shape[0]] + [None] * shape.shape.rank)
        stacked = tf.reverse(stacked, [0]) if back else stacked
        axis = axis_of(stacked, axis)
        joined.append(tf.transpose(stacked, [*range(1, axis + 1), 0, *range(axis + 1, rank(stacked))]))
    return (*states, *joined)
