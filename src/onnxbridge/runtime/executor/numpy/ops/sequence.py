"""Sequences, which are Python lists that are never modified, and optional values, which are None when empty."""

from __future__ import annotations

import numpy as np

from onnxbridge.hub.io.resource_limits import claim, current
from onnxbridge.rules import Int
from onnxbridge.runtime.executor.numpy.ops import rule


@rule("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return []


@rule("SequenceConstruct")
def sequence_construct(*inputs):
    return list(inputs)


def _index(position, length):
    """A position as a non-negative index.

    Raises:
        IndexError: if there is no such element.
    """
    if not -length <= position < length:
        raise IndexError(f"position {position} in a sequence of {length}")
    return position % length


@rule("SequenceAt")
def sequence_at(input_sequence, position: Int):
    return input_sequence[_index(position, len(input_sequence))]


@rule("SequenceErase")
def sequence_erase(input_sequence, position: Int = -1):
    at = _index(position, len(input_sequence))
    return input_sequence[:at] + input_sequence[at + 1 :]


@rule("SequenceInsert")
def sequence_insert(input_sequence, tensor, position: Int | None = None):
    length = len(input_sequence)
    current().check_items(length + 1)
    # Estimated with equal sizes, since summing sizes at every step would be quadratic.
    claim((length + 1, tensor.size), tensor.dtype)
    at = length if position is None or position == length else _index(position, length)
    return [*input_sequence[:at], tensor, *input_sequence[at:]]


@rule("SequenceLength")
def sequence_length(input_sequence):
    return np.array(len(input_sequence), np.int64)


@rule("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    budget = current()
    results = []
    for i, item in enumerate(input_sequence):
        budget.count_iterations()
        results.append(body(item, *(more[i] if isinstance(more, list) else more for more in additional_inputs)))
    return tuple(list(values) for values in zip(*results, strict=True)) if results else tuple([] for _ in body.declared)


@rule("SplitToSequence")
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    length = input.shape[axis]
    if split is None:
        current().check_items(length)
        parts = np.split(input, length, axis) if length else []
        return parts if keepdims else [np.squeeze(p, axis) for p in parts]
    if split.ndim == 0:
        each = int(split)
        current().check_items(-(-length // each))
        return np.split(input, range(each, length, each), axis)
    if split.sum() != length:
        raise ValueError(f"the parts {split.tolist()} do not add up to {length}")
    return np.split(input, np.cumsum(split)[:-1], axis)


@rule("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    claim([sum(x.size for x in input_sequence)], input_sequence[0].dtype)
    return np.stack(input_sequence, axis) if new_axis else np.concatenate(input_sequence, axis)


@rule("Optional")
def optional(input=None, *, type=None):
    return input


@rule("OptionalHasElement")
def optional_has_element(input=None):
    return np.array(input is not None)


@rule("OptionalGetElement")
def optional_get_element(input):
    if input is None:
        raise ValueError("the optional value is empty")
    return input
