"""Iteration over the nodes of TorchScript graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def every_node(block: Any) -> Iterator[Any]:
    """The nodes of a graph, including those in nested blocks."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from every_node(inner)
