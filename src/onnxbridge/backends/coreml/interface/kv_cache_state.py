"""A cache that grows by concatenation, as a state of a fixed length and a position in it.

A decoder is exported with its past as an input of a dynamic length, and gives the past with the new tokens behind it. Core ML's
states have one shape, so the state is as long as the past may become. A further input says how much of it is filled; the new
tokens are written behind that, and what the decoder reads is the filled part. That is the same only where the past is read in its
concatenation alone, which is what is looked at here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.backends.coreml.artifact import Growth
from onnxbridge.backends.coreml.element_types import cast
from onnxbridge.backends.coreml.sizes import size, vector
from onnxbridge.errors import Unsupported

Bounds = Mapping[str, tuple[int, int | None]]
LARGEST = 2048
"""The bound of a dynamic dimension that nobody bounded; Core ML takes none without."""
WAY_OUT = "export the model with a cache of a fixed length, written in place"
PAST = {"Attention": {1: 4, 2: 5}}
"""Of operators that concatenate by themselves: by output, the input that is the past, which grows along axis 2."""


def growth(value: ir.Value, result: ir.Value, dims: Sequence[int | str | None], bounds: Bounds) -> Growth:
    """How the input `value`, of these sizes, becomes the output `result`.

    Raises:
        Unsupported: where it does not grow by a concatenation behind it along its only dynamic axis, or is read otherwise too.
    """
    axes = [a for a, d in enumerate(dims) if not isinstance(d, int)]
    label = dims[axes[0]] if len(axes) == 1 else None
    if not isinstance(label, str):
        named = ", ".join(str(dims[a] or "?") for a in axes)
        raise Unsupported(
            f"a state grows along one named size; {named} of {list(dims)} are dynamic", "fix the others: --dynamic NAME=1..1"
        )
    steps, joined = _grown(result, value, axes[0])
    for reader, place in _readers(value):
        if reader is not joined and reader.op_type != "Shape":
            what = f"{reader.op_type} {reader.name or ''}".strip()
            raise Unsupported(f"the growing state is read by {what} too, beside what it is concatenated in", WAY_OUT)
        if reader is joined and place != _place(joined, result):
            raise Unsupported("the growing state is concatenated with itself", WAY_OUT)
    past = bounds_of(label, bounds)[1] or LARGEST
    more = steps if isinstance(steps, int) else bounds_of(steps, bounds)[1] or LARGEST
    return Growth(axes[0], label, steps, past + more)


def bounds_of(label: str, bounds: Bounds) -> tuple[int, int | None]:
    """The bounds of a size by its name; those of "past + 1" follow from those of "past"."""
    name, plus, more = label.partition(" + ")
    if label in bounds or not (plus and more.isdigit() and name in bounds):
        return bounds.get(label, (1, None))
    low, high = bounds[name]
    return low + int(more), None if high is None else high + int(more)


def _grown(result: ir.Value, value: ir.Value, axis: int) -> tuple[int | str, ir.Node]:
    """How many new elements there are behind the past, and the operator that puts them there."""
    made = _source(result)
    node = made.producer()
    if node is None or node.op_type not in ("Concat", *PAST) or node.domain not in ("", "ai.onnx"):
        what = "an input" if node is None else node.op_type
        raise Unsupported(f"its next value, {result.name}, is made by {what}, not by a Concat behind it", WAY_OUT)
    place = _place(node, made)
    past = node.inputs[place] if place < len(node.inputs) else None
    if past is None or _source(past) is not value:
        raise Unsupported(f"its next value, {result.name}, does not begin with it", WAY_OUT)
    if node.op_type == "Concat":
        along = node.attributes["axis"].as_int()
        parts = [v for v in node.inputs[1:] if v is not None]
    else:
        along, parts = 2, [v for v in (node.inputs[made.index() or 0],) if v is not None]
    rank = len(value.shape or ())
    if along % rank != axis:
        raise Unsupported(f"its next value, {result.name}, is longer along axis {along % rank}, not {axis}", WAY_OUT)
    sizes = [_size(p, along if node.op_type == "Concat" or len(p.shape or ()) == rank else 1) for p in parts]
    if all(isinstance(n, int) for n in sizes):
        return sum(n for n in sizes if isinstance(n, int)), node
    if len(sizes) == 1 and isinstance(sizes[0], str):
        return sizes[0], node
    raise Unsupported("how many elements are added to the growing state is not known", "name the size of the new tokens")


def _place(node: ir.Node, made: ir.Value) -> int:
    """Which input of the operator is the past."""
    return 0 if node.op_type == "Concat" else PAST[node.op_type].get(_source(made).index() or 0, len(node.inputs))


def _source(value: ir.Value) -> ir.Value:
    """The value behind operators that only name it again."""
    node = value.producer()
    while node is not None and node.op_type == "Identity" and node.inputs[0] is not None:
        value = node.inputs[0]
        node = value.producer()
    return value


def _readers(value: ir.Value) -> list[tuple[ir.Node, int]]:
    found = []
    for node, place in value.uses():
        found += _readers(node.outputs[0]) if node.op_type == "Identity" else [(node, place)]
    return found


def _size(value: ir.Value, axis: int) -> int | str | None:
    if value.shape is None:
        return None
    dim = value.shape[axis]
    return dim if isinstance(dim, int) else dim.value


class Grown:
    """The past of a state that grows: what operators get in its place."""

    def __init__(self, state: Any, position: Any, growth: Growth, kind: Any) -> None:
        self._state, self._axis, self._kind = state, growth.axis, kind
        self._held = mb.read_state(input=state)
        self.position = mb.squeeze(x=position, axes=[0])
        self.rank = self._held.rank

    @property
    def sizes(self) -> list[Any]:
        """Its sizes, of which the one that grows is a value."""
        return [self.position if a == self._axis else int(n) for a, n in enumerate(self._held.shape)]

    def followed_by(self, new: Any) -> Any:
        """The past with new elements behind it, which are written into the state."""
        count = size(new, self._axis)
        end = mb.add(x=self.position, y=np.int32(count) if isinstance(count, int) else count)
        along = [a == self._axis for a in range(self.rank)]
        others = [not a for a in along]
        begins = vector([self.position if a else 0 for a in along])
        ends = vector([end if a else int(n) for a, n in zip(along, self._held.shape, strict=True)])
        whole = mb.slice_update(
            x=self._held, update=cast(new, types.fp16), begin=begins, end=ends, begin_mask=others, end_mask=others
        )
        whole = mb.coreml_update_state(state=self._state, value=whole)
        filled = mb.slice_by_index(x=whole, begin=[0] * self.rank, end=ends, begin_mask=[True] * self.rank, end_mask=others)
        return cast(filled, self._kind)
