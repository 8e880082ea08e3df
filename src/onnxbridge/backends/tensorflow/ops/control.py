"""Control flow."""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import axis_of, rank, size
from onnxbridge.backends.tensorflow.tensor_list import packed, unpacked


@rule("If")
def if_(cond, *, then_branch, else_branch):
    cond = tf.reshape(cond, [])
    known = tf.get_static_value(cond)
    if known is not None:
        return then_branch() if known else else_branch()
    kinds = []

    def then():
        kinds[:] = then_branch()
        return packed(kinds)

    found = tf.cond(cond, then, lambda: packed(else_branch()))
    return unpacked(found if isinstance(found, (tuple, list)) else (found,), kinds)


def _rank_only(value):
    """A shape of the same rank; sizes may change between iterations."""
    return tf.TensorShape([None] * value.shape.rank) if value.shape.rank is not None else tf.TensorShape(None)


@rule("Loop")
def loop(M=None, cond=None, *v_initial, body):
    states = packed(v_initial)
    limit = tf.constant(tf.int64.max, tf.int64) if M is None else tf.reshape(M, [])
    condition = tf.constant(True) if cond is None else tf.reshape(cond, [])

    def one(iteration, condition, *states):
        results = body(iteration, condition, *unpacked(states, v_initial))
        count = 1 + len(states)
        return tf.reshape(results[0], []), packed(results[1:count]), results[count:]

    specs = [tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.bool), *(tf.TensorSpec(_rank_only(s), s.dtype) for s in states)]
    scans = _probed(lambda *inputs: one(*inputs)[2], specs)

    def step(iteration, condition, states, arrays):
        condition, states, elements = one(iteration, condition, *states)
        arrays = tuple(a.write(tf.cast(iteration, tf.int32), e) for a, e in zip(arrays, elements, strict=True))
        return iteration + 1, condition, states, arrays

    def continues(iteration, condition, states, arrays):
        return condition & (iteration < limit)

    start = (tf.constant(0, tf.int64), condition, states, _arrays(scans))
    shapes = (tf.TensorShape([]), tf.TensorShape([]), tuple(map(_rank_only, states)), tuple(tf.TensorShape(None) for _ in scans))
    _, _, states, arrays = tf.while_loop(continues, step, start, shape_invariants=shapes)
    return (*unpacked(states, v_initial), *(_stacked(a, s) for a, s in zip(arrays, scans, strict=True)))


def _probed(function, specs):
    """The results of a function on symbolic inputs, from a trace that is discarded."""
    found = []

    def trace(*inputs):
        found[:] = function(*inputs)  # TensorFlow may trace more than once
        return [tf.identity(f) for f in found]

    tf.function(trace, input_signature=specs, autograph=False).get_concrete_function()
    return found


def _arrays(elements):
    """Empty arrays for tensors like these."""
    return tuple(
        tf.TensorArray(e.dtype, 0, dynamic_size=True, infer_shape=False, element_shape=e.shape if _is_static(e) else None)
        for e in elements
    )


def _is_static(element):
    return element.shape.is_fully_defined()


def _stacked(array, element):
    """The elements of an array in one tensor; of an empty array, axes of unknown size have the size 0."""
    if _is_static(element) or element.shape.rank is None:
        return array.stack()
    sizes = [n or 0 for n in element.shape.as_list()]
    stacked = tf.cond(array.size() > 0, array.stack, lambda: tf.zeros([0, *sizes], element.dtype))
    stacked.set_shape([None, *element.shape])
    return stacked


@rule("Scan")
def scan(
    *initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes=None, scan_input_directions=None,
    scan_output_axes=None, scan_output_directions=None,
):  # fmt: skip
    inputs_ = initial_state_and_scan_inputs
    count = len(inputs_) - num_scan_inputs
    states = packed(inputs_[:count])
    axes = scan_input_axes or (0,) * num_scan_inputs
    reverse = scan_input_directions or (0,) * num_scan_inputs
    sequences = []
    for s, axis, reversed_ in zip(inputs_[count:], axes, reverse, strict=True):
        axis = axis_of(s, axis)
        front = tf.transpose(s, [axis, *(d for d in range(rank(s)) if d != axis)])
        sequences.append(tf.reverse(front, [0]) if reversed_ else front)
    specs = [tf.TensorSpec(s.shape, s.dtype) for s in states] + [tf.TensorSpec(s.shape[1:], s.dtype) for s in sequences]
    elements = _probed(lambda *inputs: body(*inputs)[count:], specs)

    def step(iteration, states, arrays):
        results = body(*states, *(s[iteration] for s in sequences))
        arrays = tuple(a.write(iteration, r) for a, r in zip(arrays, results[count:], strict=True))
        return iteration + 1, packed(results[:count]), arrays

    length = size(sequences[0], 0)
    shapes = (tf.TensorShape([]), tuple(map(_rank_only, states)), tuple(tf.TensorShape(None) for _ in elements))
    start = (tf.constant(0), states, _arrays(elements))
    _, states, arrays = tf.while_loop(lambda iteration, *_: iteration < length, step, start, shape_invariants=shapes)
    joined = []
    out_axes, out_reverse = scan_output_axes or (0,) * len(elements), scan_output_directions or (0,) * len(elements)
    for array, element, axis, reversed_ in zip(arrays, elements, out_axes, out_reverse, strict=True):
        stacked = _stacked(array, element)
        stacked.set_shape([sequences[0].shape[0]] + [None] * rank(element))
        stacked = tf.reverse(stacked, [0]) if reversed_ else stacked
        axis = axis_of(stacked, axis)
        joined.append(tf.transpose(stacked, [*range(1, axis + 1), 0, *range(axis + 1, rank(stacked))]))
    return (*states, *joined)
