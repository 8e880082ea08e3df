"""Sequences, and optional values, which may be None.

A sequence is a Python list while its length is known, else a `TensorList`.
"""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import axis_of, known, size
from onnxbridge.backends.tensorflow.tensor_list import TensorList, empty, generated, tensor_list


@rule("SequenceConstruct")
def sequence_construct(*inputs):
    return list(inputs)


@rule("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return []


def _is_known(input_sequence, position=None):
    """Whether the result of an operator at this position is a Python list, too."""
    return isinstance(input_sequence, list) and not isinstance(known(position), tf.Tensor)


def _index(position, length):
    """A position as a non-negative scalar."""
    index = tf.cast(tf.reshape(position, []), tf.int32)
    return tf.where(index < 0, index + length, index)


@rule("SequenceAt")
def sequence_at(input_sequence, position):
    if _is_known(input_sequence, position):
        return input_sequence[int(known(position)[0])]
    elements = tensor_list(input_sequence)
    return elements.at(_index(position, elements.length))


@rule("SequenceInsert")
def sequence_insert(input_sequence, tensor, position=None):
    if _is_known(input_sequence, position):
        made = list(input_sequence)
        made.insert(len(made) if position is None else int(known(position)[0]), tensor)
        return made
    elements = tensor_list(input_sequence)
    if position is None:
        return elements.appended(tensor)
    at = _index(position, elements.length)

    def element(i):
        return tf.cond(i == at, lambda: tensor, lambda: elements.at(tf.where(i > at, i - 1, i)))

    return generated(elements.length + 1, element, elements.dtype)


@rule("SequenceErase")
def sequence_erase(input_sequence, position=None):
    if _is_known(input_sequence, position):
        made = list(input_sequence)
        del made[-1 if position is None else int(known(position)[0])]
        return made
    elements = tensor_list(input_sequence)
    at = _index(tf.constant(-1) if position is None else position, elements.length)
    return generated(elements.length - 1, lambda i: elements.at(tf.where(i >= at, i + 1, i)), elements.dtype)


@rule("SequenceLength")
def sequence_length(input_sequence):
    if isinstance(input_sequence, list):
        return tf.constant(len(input_sequence), tf.int64)
    return tf.cast(input_sequence.length, tf.int64)


@rule("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    if isinstance(input_sequence, list):
        return tf.stack(input_sequence, axis) if new_axis else tf.concat(input_sequence, axis)

    def widened(i):
        return tf.expand_dims(input_sequence.at(i), axis) if new_axis else input_sequence.at(i)

    def step(i, joined):
        return i + 1, tf.concat([joined, widened(i)], axis)

    start = (tf.constant(1), widened(tf.constant(0)))
    _, joined = tf.while_loop(
        lambda i, _: i < input_sequence.length, step, start, shape_invariants=(tf.TensorShape([]), tf.TensorShape(None))
    )
    return joined


@rule("SplitToSequence")
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    axis, total, parts = axis_of(input, axis), size(input, axis), known(split)
    if isinstance(parts, tf.Tensor) or not isinstance(total, int):
        return _split_at_run_time(input, split, axis, total, keepdims)
    if parts is None:
        found = tf.split(input, total, axis)
        return list(found) if keepdims else [tf.squeeze(p, [axis]) for p in found]
    if split.shape.rank == 0:
        parts = [min(parts[0], total - i) for i in range(0, total, parts[0])]
    return list(tf.split(input, list(parts), axis))


def _split_at_run_time(input, split, axis, total, keepdims):
    if split is None:
        count, ends = total, tf.range(1, total + 1)
    elif split.shape.rank == 0:
        part = tf.cast(split, tf.int32)
        count = -(-total // part)
        ends = tf.minimum(tf.range(1, count + 1) * part, total)
    else:
        count, ends = size(split, 0), tf.cumsum(tf.cast(split, tf.int32))

    def element(i):
        found = tf.gather(input, tf.range(tf.where(i == 0, 0, ends[tf.maximum(i - 1, 0)]), ends[i]), axis=axis)
        return found if keepdims or split is not None else tf.squeeze(found, [axis])

    return generated(count, element, input.dtype)


@rule("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    sequences = [v for v in (input_sequence, *additional_inputs) if isinstance(v, (list, TensorList))]
    if all(isinstance(v, list) for v in sequences):
        rows = []
        for i, first in enumerate(input_sequence):
            rows.append(body(first, *(a[i] if isinstance(a, list) else a for a in additional_inputs)))
        if rows:
            return tuple(list(column) for column in zip(*rows, strict=True))
    inputs = [tensor_list(v) if isinstance(v, (list, TensorList)) else v for v in (input_sequence, *additional_inputs)]
    kinds = body.output_types

    def step(i, handles):
        results = body(*(v.at(i) if isinstance(v, TensorList) else v for v in inputs))
        lists = [TensorList(h, k) for h, k in zip(handles, kinds, strict=True)]
        return i + 1, tuple(made.appended(r).handle for made, r in zip(lists, results, strict=True))

    start = tf.constant(0), tuple(empty(k).handle for k in kinds)
    _, handles = tf.while_loop(lambda i, _: i < inputs[0].length, step, start)
    return tuple(TensorList(h, k) for h, k in zip(handles, kinds, strict=True))


@rule("OptionalHasElement")
def optional_has_element(input=None):
    return tf.constant(input is not None)


@rule("OptionalGetElement")
def optional_get_element(input):
    return tf.identity(input) if isinstance(input, tf.Tensor) else input


@rule("Optional")
def optional(input=None, *, type=None):
    return input
