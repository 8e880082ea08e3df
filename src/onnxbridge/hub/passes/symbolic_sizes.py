"""Symbolic keys of sizes, to prove that two dynamic sizes are equal."""

from __future__ import annotations

from collections.abc import Hashable

import onnx_ir as ir

from onnxbridge.hub.ir import fold

_ELEMENTWISE = frozenset({"Abs", "Cast", "Exp", "Identity", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh"})
_MAX_BOUND = 2**31 - 1


def count(value: ir.Value | None) -> Hashable:
    """A key of an integer scalar: its number, a dimension name, or a unique key; equal keys imply equal numbers."""
    while value is not None:
        known = fold.known_elements(value)
        if known is not None and len(known) == 1 and known[0] is not None:
            return known[0]
        node = value.producer()
        if node is None or node.domain:
            break
        if node.op_type in ("Identity", "Reshape", "Squeeze", "Unsqueeze") or (node.op_type == "Cast" and _is_integer_cast(node)):
            value = node.inputs[0]
            continue
        size = selected_size(node)
        return value if size is None else extent(*size)
    return value


def extent(value: ir.Value, axis: int) -> Hashable:
    """The key of a value's size along an axis, as `count`."""
    while True:
        size = value.shape[axis] if value.shape is not None else None
        if isinstance(size, int):
            return size
        if isinstance(size, ir.SymbolicDim) and size.value is not None:
            return size.value
        node = value.producer()
        before = node.inputs[0] if node is not None and not node.domain and node.inputs else None
        if node is None or before is None:
            return value, axis
        if node.op_type == "Transpose" and "perm" in node.attributes:
            axis = node.attributes["perm"].as_ints()[axis]
        elif node.op_type == "Expand" and before.shape is not None and not len(before.shape):
            found = _element(node.inputs[1], axis)
            return (value, axis) if found is None else count(found)
        elif node.op_type not in _ELEMENTWISE and not reverses(node):
            return value, axis
        value = before


def reverses(node: ir.Node) -> list[int]:
    """The axes that a Slice reverses completely; empty if it does anything else."""
    if node.op_type != "Slice" or node.domain or len(node.inputs) < 5:
        return []
    starts, ends, axes, steps = (fold.known_sizes(v) for v in node.inputs[1:5])
    if starts is None or ends is None or axes is None or steps is None:
        return []
    given = zip(starts, ends, steps, strict=True)
    whole = all((s == -1 or (s or 0) >= _MAX_BOUND) and (e or 0) < -_MAX_BOUND and t == -1 for s, e, t in given)
    return [a for a in axes if a is not None] if whole else []


def _is_integer_cast(node: ir.Node) -> bool:
    return all(v is not None and v.dtype in (ir.DataType.INT32, ir.DataType.INT64) for v in (node.inputs[0], node.outputs[0]))


def _element(value: ir.Value | None, index: int) -> ir.Value | None:
    """The value of one element of a shape built by Concat."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "Concat":
        return None
    for part in node.inputs:
        length = part.shape[0] if part is not None and part.shape is not None and len(part.shape) == 1 else None
        if not isinstance(length, int):
            return None
        if index < length:
            return part if length == 1 else None
        index -= length
    return None


def selected_size(node: ir.Node) -> tuple[ir.Value, int] | None:
    """The value and the axis whose size a Gather or Slice selects from a Shape."""
    if node.op_type not in ("Gather", "Slice") or node.inputs[0] is None:
        return None
    chosen = fold.known_elements(node.inputs[1])
    if chosen is None or len(chosen) != 1 or not isinstance(chosen[0], int) or chosen[0] < 0:
        return None
    if node.op_type == "Slice" and list(node.outputs[0].shape or ()) != [1]:
        return None
    shape = node.inputs[0].producer()
    while shape is not None and shape.op_type in ("Cast", "Identity") and shape.inputs[0] is not None:
        shape = shape.inputs[0].producer()
    of = shape.inputs[0] if shape is not None and shape.op_type == "Shape" and not shape.domain else None
    if shape is None or of is None or of.shape is None:
        return None
    start = shape.attributes.get("start")
    return of, (start.as_int() if start is not None else 0) % max(len(of.shape), 1) + chosen[0]
