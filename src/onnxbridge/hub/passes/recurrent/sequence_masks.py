"""Steps of a recurrent loop that are skipped where a mask is False, and how LSTM, GRU and RNN express them by sequence lengths.

A step that is skipped leaves the state as it is. Sequences with a length skip the steps at their end, which is what
`sequence_lens` says. Of any other mask, the steps that count are moved to the front, in their order, and the results are moved
back, so that gaps are exact, too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.passes.value_queries import NUMBER, produced_by, skip_nodes

_BROADCAST = frozenset({"Identity", "Tile", "Expand", "Unsqueeze", "Reshape"})
_LESS = {"Less": (0, 1), "Greater": (1, 0)}
_NOT_LESS = {"GreaterOrEqual": (0, 1), "LessOrEqual": (1, 0)}
"""The indices of the time and of the length in comparisons that are True in the sequence, and after its end."""


@dataclass(frozen=True)
class Mask:
    """Which steps of which sequence of the batch count.

    Attributes:
        steps: of boolean type, (time, batch) or (time, batch, 1), or None.
        lengths: integers (batch), or None.
        inverted: whether `steps` is True for the steps that are skipped.
    """

    steps: ir.Value | None
    lengths: ir.Value | None
    inverted: bool = False


@dataclass(frozen=True)
class Masked:
    """A value that is `new` in steps that count, and `old` in those that are skipped."""

    mask: Mask
    new: ir.Value
    old: ir.Value


def masked(value: Any, body: ir.Graph, times: Collection[ir.Value] = ()) -> Masked | None:
    """The parts of a value of a loop's body that depends on a mask; None if it does not.

    `times` are states of the loop that count its iterations, from 0.
    """
    node = produced_by(value, "Where")
    if node is None or None in node.inputs:
        return None
    condition, first, second = node.inputs
    found = _mask(condition, body, {body.inputs[0], *times})
    if found is None:
        return None
    mask, is_step = found
    return Masked(mask, *((first, second) if is_step else (second, first)))  # type: ignore[arg-type]  # Where has no optional inputs


def _mask(condition: Any, body: ir.Graph, times: Collection[Any]) -> tuple[Mask, bool] | None:
    """The mask, and whether the condition is True in steps that count."""
    value, is_step = skip_nodes(condition, _BROADCAST), True
    while (node := value.producer()) is not None and node.op_type == "Not" and not node.domain:
        value, is_step = skip_nodes(node.inputs[0], _BROADCAST), not is_step
    if node is None or node.domain or node.graph is not body:
        return None
    for table, counts in ((_LESS, True), (_NOT_LESS, False)):
        if node.op_type in table:
            time, lengths = (node.inputs[i] for i in table[node.op_type])
            lengths = skip_nodes(lengths)
            outside = lengths is not None and not _is_inside(lengths, body)
            rank = len(lengths.shape) if outside and lengths.shape is not None else None
            if skip_nodes(time, NUMBER) in times and rank == 1:
                return Mask(None, lengths), is_step is counts
    if node.op_type == "Gather" and not ("axis" in node.attributes and node.attributes["axis"].as_int()):
        data, index = node.inputs
        shape = None if data is None or _is_inside(data, body) else data.shape
        if data is not None and shape is not None and skip_nodes(index, NUMBER) in times:
            flat = len(shape) == 2 or (len(shape) == 3 and shape[2] == 1)
            return (Mask(data, None, not is_step), True) if flat and data.dtype == ir.DataType.BOOL else None
    return None


def _is_inside(value: ir.Value, body: ir.Graph) -> bool:
    node = value.producer()
    return value in body.inputs if node is None else node.graph is body


@dataclass(frozen=True)
class FrontSteps:
    """The steps that count, moved to the front.

    Attributes:
        lengths: how many there are, int32 (batch); None if all count.
        steps: which steps count, boolean (time, batch, 1); None if they are at the front already.
        valid: the same as int64 (batch, time).
        order: the index of the step that is moved to each position, (batch, time); None likewise.
    """

    lengths: ir.Value | None = None
    steps: ir.Value | None = None
    valid: ir.Value | None = None
    order: ir.Value | None = None

    def sequence(self, op: Builder, sequence: ir.Value) -> ir.Value:
        """The sequence (time, batch, features) in this order."""
        return sequence if self.order is None else _gather_steps(op, sequence, self.order)

    def outputs(self, op: Builder, found: ir.Value, where_skipped: Any, before: ir.Value | None) -> ir.Value:
        """Results (time, batch, features) in the order of the steps.

        Args:
            where_skipped: the result of a skipped step; None for the result of the last step that counts.
            before: in this case, the result before the first one, None for zero.
        """
        if self.valid is None:
            return found
        counted = op.CumSum(self.valid, np.int64(1))
        found = _gather_steps(op, found, op.Max(op.Sub(counted, np.int64(1)), np.int64(0)))
        if where_skipped is not None:
            return _value(op.Where(self.steps, found, where_skipped))
        started = op.Unsqueeze(op.Transpose(op.Greater(counted, np.int64(0)), perm=[1, 0]), [2])
        assert found.dtype is not None
        return _value(op.Where(started, found, np.zeros((), found.dtype.numpy()) if before is None else before))

    def last(self, op: Builder, state: ir.Value, before: ir.Value | None) -> ir.Value:
        """The last state of each sequence (batch, features), of sequences without steps the one before."""
        if before is None or self.lengths is None:
            return state
        empty = op.Equal(op.Unsqueeze(self.lengths, [1]), np.int32(0))
        return _value(op.Where(empty, before, state))


def front_steps(op: Builder, mask: Mask, sequence: ir.Value) -> FrontSteps:
    """Write what brings the steps that count to the front."""
    if mask.lengths is not None:
        steps = op.Gather(op.Shape(sequence), np.int64(0))
        lengths = op.Min(op.Cast(mask.lengths, to=ir.DataType.INT64), steps)
        return FrontSteps(op.Cast(lengths, to=ir.DataType.INT32))
    assert mask.steps is not None and mask.steps.shape is not None
    column = mask.steps if len(mask.steps.shape) == 3 else op.Unsqueeze(mask.steps, [2])
    column = op.Not(column) if mask.inverted else column
    valid = op.Cast(op.Transpose(op.Squeeze(column, [2]), perm=[1, 0]), to=ir.DataType.INT64)
    lengths = op.Cast(op.ReduceSum(valid, [1], keepdims=0), to=ir.DataType.INT32)
    # of equal elements, TopK takes those with lower indices first
    _, order = op.TopK(valid, op.Shape(valid, start=1, end=2), axis=1, outputs=2)
    return FrontSteps(lengths, column, valid, order)


def _gather_steps(op: Builder, sequence: ir.Value, order: ir.Value) -> ir.Value:
    batch_first = op.Transpose(sequence, perm=[1, 0, 2])
    return _value(op.Transpose(op.GatherND(batch_first, op.Unsqueeze(order, [2]), batch_dims=1), perm=[1, 0, 2]))


def _value(written: Any) -> ir.Value:
    assert isinstance(written, ir.Value)
    return written
