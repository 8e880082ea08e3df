"""Sequences, which are Python lists while TensorFlow traces, and optional values, which may be None.

A sequence's length must be known while tracing, and its elements' positions if their shapes differ.
"""

from __future__ import annotations

import tensorflow as tf

from onnxbridge.backends.tensorflow.ops import rule
from onnxbridge.backends.tensorflow.sizes import known, size
from onnxbridge.errors import Unsupported


@rule("SequenceConstruct")
def sequence_construct(*inputs):
    return list(inputs)


@rule("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return []


def _known(position):
    fixed = known(position)
    if isinstance(fixed, tf.Tensor):
        raise Unsupported("a position in a sequence must be known when converting", "make it a constant")
    return int(fixed[0])


@rule("SequenceAt")
def sequence_at(input_sequence, position):
    fixed = known(position)
    if not isinstance(fixed, tf.Tensor):
        return input_sequence[int(fixed[0])]
    index = tf.cast(tf.reshape(position, []), tf.int32)
    index = tf.where(index < 0, index + len(input_sequence), index)
    return tf.switch_case(index, [lambda v=v: tf.identity(v) for v in input_sequence])


@rule("SequenceInsert")
def sequence_insert(input_sequence, tensor, position=None):
    index = len(input_sequence) if position is None else _known(position)
    made = list(input_sequence)
    made.insert(index if index >= 0 else index + len(input_sequence), tensor)
    return made


@rule("SequenceErase")
def sequence_erase(input_sequence, position=None):
    made = list(input_sequence)
    del made[-1 if position is None else _known(position)]
    return made


@rule("SequenceLength")
def sequence_length(input_sequence):
    return tf.constant(len(input_sequence), tf.int64)


@rule("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    return tf.stack(input_sequence, axis) if new_axis else tf.concat(input_sequence, axis)


@rule("SplitToSequence")
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    total = size(input, axis)
    parts = known(split)
    if isinstance(parts, tf.Tensor) or not isinstance(total, int):
        raise Unsupported("the lengths of a sequence's elements must be known when converting")
    if parts is None:
        found = tf.split(input, total, axis)
        return list(found) if keepdims else [tf.squeeze(p, [axis]) for p in found]
    if split.shape.rank == 0:
        parts = [min(parts[0], total - i) for i in range(0, total, parts[0])]
    return list(tf.split(input, list(parts), axis))


@rule("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    rows = []
    for i, first in enumerate(input_sequence):
        rows.append(body(first, *(a[i] if isinstance(a, list) else a for a in additional_inputs)))
    return tuple(list(column) for column in zip(*rows, strict=True))


@rule("OptionalHasElement")
def optional_has_element(input=None):
    return tf.constant(input is not None)


@rule("OptionalGetElement")
def optional_get_element(input):
    return tf.identity(input) if isinstance(input, tf.Tensor) else input


@rule("Optional")
def optional(input=None, *, type=None):
    return input
