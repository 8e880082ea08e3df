"""Sequences, which are Python lists in a module, and optional values, which may be None."""

from __future__ import annotations

import torch

from onnxbridge.backends.pytorch.ops import rule
from onnxbridge.backends.pytorch.trace.size_arithmetic import known_ints
from onnxbridge.backends.pytorch.trace.tracer import Deferred, Unknown, data_dependent_call


@data_dependent_call
def listed(*inputs):
    return list(inputs)


@rule("SequenceConstruct")
def sequence_construct(*inputs):
    return listed(*inputs)


def _position(position):
    """A position as an int if it is known."""
    known = known_ints(position)
    return known[0] if isinstance(known, tuple) else position


@rule("SequenceEmpty")
def sequence_empty(*, dtype=None):
    return Deferred(listed)


@data_dependent_call
def element(input_sequence, position):
    return input_sequence[int(position)]


@rule("SequenceAt")
def sequence_at(input_sequence, position):
    return element(input_sequence, _position(position))


@data_dependent_call
def inserted(input_sequence, tensor, position=None):
    made = list(input_sequence)
    index = len(made) if position is None else int(position)
    made.insert(index if index >= 0 else index + len(input_sequence), tensor)
    return made


@rule("SequenceInsert")
def sequence_insert(input_sequence, tensor, position=None):
    return inserted(input_sequence, tensor, _position(position))


@data_dependent_call
def erased(input_sequence, position=None):
    made = list(input_sequence)
    del made[-1 if position is None else int(position)]
    return made


@rule("SequenceErase")
def sequence_erase(input_sequence, position=None):
    return erased(input_sequence, _position(position))


@data_dependent_call
def length(input_sequence):
    return torch.tensor(len(input_sequence), dtype=torch.int64)


rule.table(SequenceLength=length)


@data_dependent_call
def joined(input_sequence, axis, new_axis):
    return torch.stack(input_sequence, axis) if new_axis else torch.cat(input_sequence, axis)


@rule("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    return joined(input_sequence, axis, new_axis)


@data_dependent_call
def parts(input, split, axis, keepdims):
    if split is None:
        found = torch.split(input, 1, axis)
        return list(found) if keepdims else [p.squeeze(axis) for p in found]
    if isinstance(split, torch.Tensor):
        split = split.tolist() if split.ndim else int(split)
    return list(torch.split(input, split, axis))


@rule("SplitToSequence")
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    known = known_ints(split)
    if isinstance(known, tuple):
        split = list(known) if split.ndim else known[0]
    return parts(input, split, axis, keepdims)


@data_dependent_call
def mapped(input_sequence, additional_inputs, body, outer):
    count = len(input_sequence)
    rows = []
    for i in range(count):
        others = [a[i] if isinstance(a, list) else a for a in additional_inputs]
        rows.append(body(input_sequence[i], *others, *outer))
    return [list(column) for column in zip(*rows, strict=True)]


@rule("SequenceMap")
def sequence_map(input_sequence, *additional_inputs, body):
    tracer = input_sequence.tracer
    inner, outer = tracer.body(body, [Unknown()] * (1 + len(additional_inputs)))
    found = mapped(input_sequence, list(additional_inputs), inner, outer)
    return tuple(found[i] for i in range(inner.count))


@data_dependent_call
def present(input):
    return torch.tensor(input is not None)


@rule("OptionalHasElement")
def optional_has_element(input=None):
    return torch.tensor(False) if input is None else present(input)


@data_dependent_call
def content(input):
    if input is None:
        raise ValueError("the optional value is empty")
    return input


rule.table(OptionalGetElement=content)


@rule("Optional")
def optional(input=None, *, type=None):
    return input
