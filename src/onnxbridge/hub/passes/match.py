"""Looks at single values of a graph, as the passes that read formulas out of it need them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir.fold import static

NUMBER = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast"})
"""What leaves a whole number the number that it is."""


def behind(value: Any, through: frozenset[str] = frozenset({"Identity"})) -> Any:
    """The value that nodes pass on without changing anything of it."""
    while value is not None and (node := value.producer()) is not None and node.op_type in through and not node.domain:
        value = node.inputs[0]
    return value


def made_by(value: Any, op_type: str) -> ir.Node | None:
    """The node that makes a value, if it is of this operator."""
    node = behind(value).producer() if value is not None else None
    return node if node is not None and node.op_type == op_type and not node.domain else None


def is_number(value: ir.Value | None, number: float) -> bool:
    """Whether a value is this one number."""
    known = static(value)
    return known is not None and known.size == 1 and bool(known.reshape(-1)[0] == number)


def is_taken(value: ir.Value) -> bool:
    """Whether anybody reads a value."""
    return bool(value.uses()) or value.is_graph_output()
