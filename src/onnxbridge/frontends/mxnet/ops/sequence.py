"""Sequences of different lengths in one array, with time and batch as the first two axes in either order."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.frontends.mxnet.ops.shape import LAST, reverse
from onnxbridge.hub.ir.values import cast, rank

INT64 = ir.DataType.INT64


@rule("SequenceMask", "_npx_sequence_mask")
def sequence_mask(op, data, sequence_length=None, *, use_sequence_length=False, value=0.0, axis=0):
    if not use_sequence_length:
        return op.Identity(data)
    steps = op.Range(0, op.Squeeze(op.Shape(data, start=axis, end=axis + 1), [0]), 1)
    inside = op.Less(op.Unsqueeze(steps, [1 - axis]), op.Unsqueeze(cast(op, sequence_length, INT64), [axis]))
    return op.Where(op.Reshape(inside, [0, 0] + [1] * (rank(data) - 2)), data, value)


@rule("SequenceLast")
def sequence_last(op, data, sequence_length=None, *, use_sequence_length=False, axis=0):
    if not use_sequence_length:
        return op.Squeeze(op.Slice(data, [-1], [LAST], [axis]), [axis])
    by_entry = op.Transpose(data, perm=[1, 0, *range(2, rank(data))]) if axis == 0 else data
    last = op.Sub(cast(op, sequence_length, INT64), 1)
    return op.GatherND(by_entry, op.Unsqueeze(last, [1]), batch_dims=1)


@rule("SequenceReverse")
def sequence_reverse(op, data, sequence_length=None, *, use_sequence_length=False, axis=0):
    if not use_sequence_length:
        return reverse(op, data, axis=(axis,))
    return op.ReverseSequence(data, cast(op, sequence_length, INT64), time_axis=axis, batch_axis=1 - axis)
