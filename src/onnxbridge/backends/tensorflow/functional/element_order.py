"""Follows the elements of values through operators that only move them: transposes, reshapes and selections.

An array of distinct numbers takes the value's place, once for each of two sets of numbers for the dynamic sizes. Where its
elements end up proves what the operators do, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array, evaluate

Array = np.ndarray[Any, Any]
_MOVES = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Gather", "Split"})
_PRIMES = (3, 5, 7, 11, 13, 17), (7, 3, 11, 5, 17, 13)
_MAX_ELEMENTS = 1 << 25
_MAX_NODES = 12


@dataclass(frozen=True)
class Sizes:
    """Numbers for the dynamic sizes of a graph, by name."""

    numbers: Mapping[str, int]

    def of(self, value: ir.Value) -> tuple[int, ...] | None:
        """The shape of a value in numbers; None if a size has no name, or the value is too large to follow."""
        if value.shape is None:
            return None
        found = [d if isinstance(d, int) else self.numbers.get(d.value or "") for d in value.shape]
        shape = tuple(d for d in found if d is not None)
        return shape if len(shape) == len(found) and np.prod(shape, dtype=object) <= _MAX_ELEMENTS else None


def sizes_of(values: Sequence[ir.Value]) -> list[Sizes]:
    """Two sets of numbers for the dynamic sizes of these values; empty if there are too many of them."""
    dims = (d for v in values for d in v.shape or ())
    names = list(dict.fromkeys(d.value for d in dims if isinstance(d, ir.SymbolicDim) and d.value))
    if len(names) > len(_PRIMES[0]):
        return []
    return [Sizes(dict(zip(names, primes, strict=False))) for primes in (_PRIMES if names else _PRIMES[:1])]


def is_move(node: ir.Node | None) -> bool:
    """Whether a node only moves the elements of its first input."""
    if node is None or node.domain or node.op_type not in _MOVES:
        return False
    first = node.inputs[0]
    known = node.op_type == "Reshape" or all(v is None or v.const_value is not None for v in node.inputs[1:])
    return first is not None and first.const_value is None and known


def moved(node: ir.Node, value: ir.Value, array: Array, sizes: Sizes) -> Array | None:
    """The elements of an output of a node that moves them."""
    if node.op_type == "Reshape" and (node.inputs[1] is None or node.inputs[1].const_value is None):
        shape = sizes.of(value)
        return None if shape is None or np.prod(shape) != array.size else array.reshape(shape)
    found = evaluate(node, [array, *(None if v is None else constant_array(v) for v in node.inputs[1:])])
    return None if found is None else found[list(node.outputs).index(value)]


def path_before(value: ir.Value) -> list[ir.Value]:
    """The value, and before it what its elements are moved from, the furthest last."""
    path = [value]
    while len(path) <= _MAX_NODES and is_move(node := path[-1].producer()):
        assert node is not None and node.inputs[0] is not None
        path.append(node.inputs[0])
    return path


def along(path: Sequence[ir.Value], array: Array, sizes: Sizes) -> Array | None:
    """The elements of the first value of a path, as `path_before` gives it, from those of the last."""
    found: Array | None = array
    for value in reversed(path[:-1]):
        node = value.producer()
        found = None if found is None or node is None else moved(node, value, found, sizes)
    return found


def numbered(shape: Sequence[int]) -> Array:
    """An array of distinct numbers, in order."""
    return np.arange(int(np.prod(shape))).reshape(shape)


def rearranged(value: ir.Value, axes: Sequence[int], shape_of: Callable[[Sequence[int]], Sequence[int]]) -> tuple[ir.Node, ...]:
    """The nodes after a value that rearrange it; the last one's result is what they make of it. Empty if there are none.

    The value's axes, ordered by `axes`, are reshaped to the shape that `shape_of` gives for their sizes.
    """
    found: list[tuple[ir.Node, ...]] = []
    for sizes in sizes_of([value]):
        shape = sizes.of(value)
        if shape is None:
            return ()
        order = [shape[a] for a in axes]
        start = numbered(order).transpose(np.argsort(axes))
        found.append(_nodes_until(value, start, numbered(shape_of(order)), sizes))
    return found[0] if found and all(f == found[0] for f in found) else ()


def _nodes_until(value: ir.Value, start: Array, wanted: Array, sizes: Sizes) -> tuple[ir.Node, ...]:
    """The nodes that move the elements of a value to where they are in `wanted`, if nothing else reads what is between."""
    arrays, waiting = {value: start}, [value]
    nodes: list[ir.Node] = []
    best: tuple[ir.Node, ...] = ()
    while waiting and len(nodes) < _MAX_NODES:
        for user in [u.node for u in waiting.pop(0).uses()]:
            if user in nodes or (found := _moved_all(user, arrays, sizes)) is None:
                continue
            arrays.update(zip(user.outputs, found, strict=True))
            nodes.append(user)
            waiting += user.outputs
            result = user.outputs[0]
            between = {v for v in arrays if v is not result}
            if np.array_equal(arrays[result], wanted) and all(
                not v.is_graph_output() and all(u.node in nodes for u in v.uses()) for v in between
            ):
                best = tuple(nodes)
    return best


def _moved_all(node: ir.Node, arrays: Mapping[ir.Value, Array], sizes: Sizes) -> list[Array] | None:
    """The elements of all outputs of a node whose inputs' elements are known."""
    if node.op_type == "Concat" and not node.domain and all(v in arrays for v in node.inputs):
        return evaluate(node, [arrays[v] for v in node.inputs if v is not None])
    first = node.inputs[0]
    if first is None or first not in arrays or not is_move(node):
        return None
    found = [moved(node, v, arrays[first], sizes) for v in node.outputs]
    return None if any(f is None for f in found) else [f for f in found if f is not None]
