"""Sequences of a static length, as Python lists of values. Core ML inputs and outputs cannot be sequences."""

import numpy as np
from coremltools.converters.mil import Builder as mb

from onnxbridge.backends.coreml.ops import rule
from onnxbridge.backends.coreml.ops.shape import concat
from onnxbridge.backends.coreml.sizes import fixed, known
from onnxbridge.errors import Unsupported
from onnxbridge.rules import Int


@rule("SequenceConstruct")
def sequence_construct(*inputs):
    return list(inputs)


@rule("SequenceEmpty")
def sequence_empty(*, dtype=1):
    return []


def _normalized_position(input_sequence, position, extra=0):
    """Normalize a negative position; `extra` positions after the last element are allowed."""
    count = len(input_sequence) + extra
    if not -len(input_sequence) <= position < count:
        raise Unsupported(f"position {position} is out of bounds for a sequence of length {len(input_sequence)}")
    return position + len(input_sequence) if position < 0 else position


@rule("SequenceAt", limits="a dynamic position needs elements of one fixed shape")
def sequence_at(input_sequence, position):
    constant_position = known(position)
    if constant_position is not None:
        return input_sequence[_normalized_position(input_sequence, constant_position[0])]
    shapes = {tuple(v.shape) for v in input_sequence}
    if len(shapes) != 1 or not fixed(input_sequence[0]):
        raise Unsupported("a dynamic position in a sequence of elements of different shapes", "concatenate them, and slice")
    count = np.int32(len(input_sequence))
    index = mb.squeeze(x=position) if position.rank else position
    index = mb.select(cond=mb.less(x=index, y=np.int32(0)), a=mb.add(x=index, y=count), b=index)
    return mb.gather(x=mb.stack(values=list(input_sequence), axis=0), indices=index, axis=0)


@rule("SequenceInsert")
def sequence_insert(input_sequence, tensor, position: Int | None = None):
    index = len(input_sequence) if position is None else _normalized_position(input_sequence, position, extra=1)
    return [*input_sequence[:index], tensor, *input_sequence[index:]]


@rule("SequenceErase")
def sequence_erase(input_sequence, position: Int | None = None):
    index = _normalized_position(input_sequence, -1 if position is None else position)
    return [*input_sequence[:index], *input_sequence[index + 1 :]]


@rule("SequenceLength")
def sequence_length(input_sequence):
    return mb.const(val=np.int32(len(input_sequence)))


@rule("ConcatFromSequence")
def concat_from_sequence(input_sequence, *, axis, new_axis=0):
    if not input_sequence:
        raise Unsupported("an empty sequence")
    if new_axis:
        return mb.stack(values=list(input_sequence), axis=axis)
    return concat(*input_sequence, axis=axis)


@rule("SplitToSequence")
def split_to_sequence(input, split=None, *, axis=0, keepdims=1):
    if not fixed(input, [axis]):
        raise Unsupported("a dynamic axis", "give the input a fixed shape")
    n = int(input.shape[axis])
    if split is None:
        parts = [1] * n
    elif split.val is None:
        raise Unsupported("dynamic split sizes", "make them a constant")
    elif split.rank == 0:
        each = int(split.val)
        parts = [min(each, n - i) for i in range(0, n, each)]
    else:
        parts = [int(i) for i in np.asarray(split.val)]
    made = [input] if len(parts) == 1 else list(mb.split(x=input, split_sizes=parts, axis=axis))
    return [mb.squeeze(x=v, axes=[axis]) for v in made] if split is None and not keepdims else made


@rule("Optional", limits="not empty")
def optional(input=None, *, type=None):
    if input is None:
        raise Unsupported("an empty optional")
    return input


@rule("OptionalGetElement")
def optional_get_element(input):
    return input


@rule("OptionalHasElement")
def optional_has_element(input=None):
    return mb.const(val=np.bool_(input is not None))
