"""Control flow."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import axis_of, rank, size
from onnxbridge.errors import Unsupported


def _identities(values):
    if not all(isinstance(v, tf.Tensor) for v in values):
        raise Unsupported("a sequence or an optional value through control flow")
    return tuple(tf.identity(v) for v in values)


@rule("If")
def if_(cond, *, then_branch, else_branch):
    cond = tf.reshape(cond, [])
    known = tf.get_static_value(cond)
    if known is not None:
        return then_branch() if known else else_branch()
    return tuple(tf.cond(cond, lambda: _identities(then_branch()), lambda: _identities(else_branch())))


def _rank_only(value):
    """A shape of the same rank; sizes may change between iterations."""
    return tf.TensorShape([None] * value.shape.rank) if value.shape.rank is not None else tf.TensorShape(None)


@rule("Loop")
def loop(M=None, cond=None, *v_initial, body):
    states = _identities(v_initial)
    limit = tf.constant(tf.int64.max, tf.int64) if M is None else tf.reshape(M, [])
    condition = tf.constant(True) if cond is None else tf.reshape(cond, [])
    dtypes = _scan_dtypes(body, states)
    arrays = tuple(tf.TensorArray(d, 0, dynamic_size=True, infer_shape=False) for d in dtypes)

    def step(iteration, condition, states, arrays):
        results = body(iteration, condition, *states)
        scans = results[1 + len(states) :]
        arrays = tuple(a.write(tf.cast(iteration, tf.int32), s) for a, s in zip(arrays, scans, strict=True))
        return iteration + 1, tf.reshape(results[0], []), _identities(results[1 : 1 + len(states)]), arrays

    def continues(iteration, condition, states, arrays):
        return condition & (iteration < limit)

    shapes = (tf.TensorShape([]), tf.TensorShape([]), tuple(map(_rank_only, states)), tuple(tf.TensorShape(None) for _ in arrays))
    start = (tf.constant(0, tf.int64), condition, states, arrays)
    _, _, states, arrays = tf.while_loop(continues, step, start, shape_invariants=shapes)
    return (*states, *(_stacked(a) for a in arrays))


def _stacked(array):
    return array.stack()


def _scan_dtypes(body, states):
    """The dtypes of the scan outputs, from a trace that is discarded."""
    found = []

    def trace(iteration, condition, *states):
        results = body(iteration, condition, *states)
        found[:] = [r.dtype for r in results[1 + len(states) :]]  # TensorFlow may trace more than once
        return iteration

    specs = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *(tf.TensorSpec(_rank_only(s), s.dtype) for s in states)]
    tf.function(trace, input_signature=specs, autograph=False).get_concrete_function()
    return found


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    inputs_ = initial_state_and_scan_inputs
    count = len(inputs_) - num_scan_inputs
    states = _identities(inputs_[:count])
    axes = scan_input_axes or (0,) * num_scan_inputs
    reverse = scan_input_directions or (0,) * num_scan_inputs
    sequences = []
    for s, axis, reversed_ in zip(inputs_[count:], axes, reverse, strict=True):
        axis = axis_of(s, axis)
        front = tf.transpose(s, [axis, *(d for d in range(rank(s)) if d != axis)])
        sequences.append(tf.reverse(front, [0]) if reversed_ else front)
    probe = tf.function(
        lambda *inputs: tuple(body(*inputs)), autograph=False,
        input_signature=[tf.TensorSpec(s.shape, s.dtype) for s in states]
        + [tf.TensorSpec(s.shape[1:], s.dtype) for s in sequences],
    ).get_concrete_function()  # fmt: skip
    dtypes = [t.dtype for t in probe.outputs[count:]]
    arrays = tuple(tf.TensorArray(d, 0, dynamic_size=True, infer_shape=False) for d in dtypes)

    def step(iteration, states, arrays):
        results = body(*states, *(s[iteration] for s in sequences))
        arrays = tuple(a.write(iteration, r) for a, r in zip(arrays, results[count:], strict=True))
        return iteration + 1, _identities(results[:count]), arrays

    length = size(sequences[0], 0)
    shapes = (tf.TensorShape([]), tuple(map(_rank_only, states)), tuple(tf.TensorShape(None) for _ in arrays))
    start = (tf.constant(0), states, arrays)
    _, states, arrays = tf.while_loop(lambda iteration, *_: iteration < length, step, start, shape_invariants=shapes)
    joined = []
    out_axes, out_reverse = scan_output_axes or (0,) * len(dtypes), scan_output_directions or (0,) * len(dtypes)
    for array, shape, axis, reversed_ in zip(arrays, probe.outputs[count:], out_axes, out_reverse, strict=True):
        stacked = array.stack()
        stacked.set_shape([sequences[0].shape[0]] + [None] * shape.shape.rank)
        stacked = tf.reverse(stacked, [0]) if reversed_ else stacked
        axis = axis_of(stacked, axis)
        joined.append(tf.transpose(stacked, [*range(1, axis + 1), 0, *range(axis + 1, rank(stacked))]))
    return (*states, *joined)
