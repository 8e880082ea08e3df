"""Reads attributes of nodes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.patterns.match import attribute


def attribute_of(node: ir.Node, name: str, default: Any) -> Any:
    """An attribute's value, the default where the node does not set it."""
    found = attribute(node, name)
    return default if found is None else found
