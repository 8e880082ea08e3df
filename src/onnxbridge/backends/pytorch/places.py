"""Where the source had what was recorded, as the path of a module."""

from __future__ import annotations

from torch import fx

from onnxbridge.backends.pytorch.weights import identifiers


def place(node: fx.Node) -> str:
    """The path of the operator's module in the source, or what the operator's own name tells of one."""
    where = node.meta.get("where")
    if where is None:
        return ""
    name = where.scope or (where.node.strip("/").rpartition("/")[0].replace("/", ".") if "/" in where.node else "")
    return ".".join(identifiers(name)) if name else ""
