"""Queries on single values, for passes that recognize formulas."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array

NUMBER = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast"})
"""Operators that do not change an integer scalar."""


def skip_nodes(value: Any, through: frozenset[str] = frozenset({"Identity"})) -> Any:
    """The value before a chain of nodes that do not change it."""
    while value is not None and (node := value.producer()) is not None and node.op_type in through and not node.domain:
        value = node.inputs[0]
    return value


def produced_by(value: Any, op_type: str) -> ir.Node | None:
    """The node that produces a value, if it has this operator."""
    node = skip_nodes(value).producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


def is_number(value: ir.Value | None, number: float) -> bool:
    """Whether a value is a constant of one element with this number."""
    known = constant_array(value)
    return known is not None and known.size == 1 and bool(known.reshape(-1)[0] == number)


def is_zero(value: ir.Value | None) -> bool:
    """Whether a value is zero: a constant, or expanded from one."""
    value = skip_nodes(value)
    known = constant_array(value)
    if known is not None:
        return not known.any()
    node = value.producer() if value is not None else None
    if node is None or node.domain:
        return False
    if node.op_type == "ConstantOfShape":
        return "value" not in node.attributes or not node.attributes["value"].as_tensor().numpy().any()
    return node.op_type == "Expand" and is_zero(node.inputs[0])


def is_used(value: ir.Value) -> bool:
    """Whether a value has uses or is a graph output."""
    return bool(value.uses()) or value.is_graph_output()
