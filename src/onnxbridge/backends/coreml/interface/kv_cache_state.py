"""A KV cache that grows by concatenation, as a state of a fixed length and a position.

An exported decoder has its past as an input of dynamic length, and returns the past with the new tokens appended. Core ML's
states have a static shape, so the state gets the maximum length of the past. An additional input says how much of it is filled;
the new tokens are written after that position, and the decoder reads the filled part. This is equivalent only if nothing but the
concatenation reads the past, which is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.element_types import cast
from onnxbridge.backends.coreml.interface.feature_values import GrowingState
from onnxbridge.backends.coreml.sizes import size, vector
from onnxbridge.errors import Unsupported

Bounds = Mapping[str, tuple[int, int | None]]
DEFAULT_BOUND = 2048
"""Default upper bound of a dynamic dimension; Core ML requires one."""
HINT = "export the model with a cache of a fixed length, written in place"
PAST_INPUTS = {"Attention": {1: 4, 2: 5}}
"""For operators that concatenate internally, along axis 2: the past's input index by output index."""


def growing_state(value: ir.Value, result: ir.Value, dims: Sequence[int | str | None], bounds: Bounds) -> GrowingState:
    """How the state `value`, of these sizes, grows to its updated value `result`.

    Raises:
        Unsupported: if elements are not appended along the only dynamic axis, or if other operators read the state.
    """
    axes = [a for a, d in enumerate(dims) if not isinstance(d, int)]
    label = dims[axes[0]] if len(axes) == 1 else None
    if not isinstance(label, str):
        named = ", ".join(str(dims[a] or "?") for a in axes)
        raise Unsupported(
            f"a state grows along one named dimension; {named} of {list(dims)} are dynamic", "fix the others: --dynamic NAME=1..1"
        )
    steps, joined = _appended(result, value, axes[0])
    for reader, index in _readers(value):
        if reader is not joined and reader.op_type != "Shape":
            what = f"{reader.op_type} {reader.name or ''}".strip()
            raise Unsupported(f"the growing state is also read by {what}, not only by its concatenation", HINT)
        if reader is joined and index != _past_index(joined, result):
            raise Unsupported("the growing state is concatenated with itself", HINT)
    past = bounds_of(label, bounds)[1] or DEFAULT_BOUND
    more = steps if isinstance(steps, int) else bounds_of(steps, bounds)[1] or DEFAULT_BOUND
    return GrowingState(axes[0], label, steps, past + more)


def bounds_of(label: str, bounds: Bounds) -> tuple[int, int | None]:
    """The bounds of a dimension by name; those of "past + 1" follow from those of "past"."""
    name, plus, more = label.partition(" + ")
    if label in bounds or not (plus and more.isdigit() and name in bounds):
        return bounds.get(label, (1, None))
    low, high = bounds[name]
    return low + int(more), None if high is None else high + int(more)


def _appended(result: ir.Value, value: ir.Value, axis: int) -> tuple[int | str, ir.Node]:
    """The number of appended elements, and the operator that appends them."""
    made = _skip_identity(result)
    node = made.producer()
    if node is None or node.op_type not in ("Concat", *PAST_INPUTS) or node.domain not in ("", "ai.onnx"):
        what = "an input" if node is None else node.op_type
        raise Unsupported(f"its updated value, {result.name}, is computed by {what}, not by a Concat that appends to it", HINT)
    index = _past_index(node, made)
    past = node.inputs[index] if index < len(node.inputs) else None
    if past is None or _skip_identity(past) is not value:
        raise Unsupported(f"its updated value, {result.name}, does not begin with it", HINT)
    if node.op_type == "Concat":
        along = node.attributes["axis"].as_int()
        parts = [v for v in node.inputs[1:] if v is not None]
    else:
        along, parts = 2, [v for v in (node.inputs[made.index() or 0],) if v is not None]
    rank = len(value.shape or ())
    if along % rank != axis:
        raise Unsupported(f"its updated value, {result.name}, grows along axis {along % rank}, not {axis}", HINT)
    sizes = [_size(p, along if node.op_type == "Concat" or len(p.shape or ()) == rank else 1) for p in parts]
    if all(isinstance(n, int) for n in sizes):
        return sum(n for n in sizes if isinstance(n, int)), node
    if len(sizes) == 1 and isinstance(sizes[0], str):
        return sizes[0], node
    raise Unsupported("the number of elements appended to the growing state is unknown", "name the dimension of the new tokens")


def _past_index(node: ir.Node, made: ir.Value) -> int:
    """The index of the operator's input that is the past."""
    return 0 if node.op_type == "Concat" else PAST_INPUTS[node.op_type].get(_skip_identity(made).index() or 0, len(node.inputs))


def _skip_identity(value: ir.Value) -> ir.Value:
    """The value before any Identity operators."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _readers(value: ir.Value) -> list[tuple[ir.Node, int]]:
    """The operators that read a value, also through Identity, with the input index."""
    found = []
    for node, index in value.uses():
        found += _readers(node.outputs[0]) if node.op_type == "Identity" else [(node, index)]
    return found


def _size(value: ir.Value, axis: int) -> int | str | None:
    if value.shape is None:
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else dim.value


class GrowingStateValue:
    """Stands for the past of a growing state in the lowered program."""

    def __init__(self, state: Any, position: Any, growing_state: GrowingState, dtype: Any) -> None:
        self._state, self._axis, self._dtype = state, growing_state.axis, dtype
        self._stored = mb.read_state(input=state)
        self.position = mb.squeeze(x=position, axes=[0])
        self.rank = self._stored.rank

    @property
    def sizes(self) -> list[Any]:
        """The sizes of the filled part; the growing one is a MIL value."""
        return [self.position if a == self._axis else int(n) for a, n in enumerate(self._stored.shape)]

    def followed_by(self, new: Any) -> Any:
        """Append new elements: writes them into the state, and returns the filled part."""
        count = size(new, self._axis)
        end = mb.add(x=self.position, y=np.int32(count) if isinstance(count, int) else count)
        along = [a == self._axis for a in range(self.rank)]
        others = [not a for a in along]
        begins = vector([self.position if a else 0 for a in along])
        ends = vector([end if a else int(n) for a, n in zip(along, self._stored.shape, strict=True)])
        updated = mb.slice_update(
            x=self._stored, update=cast(new, types.fp16), begin=begins, end=ends, begin_mask=others, end_mask=others
        )
        updated = mb.coreml_update_state(state=self._state, value=updated)
        filled = mb.slice_by_index(x=updated, begin=[0] * self.rank, end=ends, begin_mask=[True] * self.rank, end_mask=others)
        return cast(filled, self._dtype)
