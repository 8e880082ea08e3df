"""The part of a graph around a value, for reports to draw."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from onnxbridge.runtime.bisect.recorded_run import Side

HOPS = 3
"""How many operators before and after the value are shown."""
MOST = 24
"""The most values that are shown."""


@dataclass(frozen=True)
class GraphNode:
    """A value and the operator that computes it.

    Attributes:
        op: "" for an input of the model.
        state: "first" for the first divergence, "agrees" or "differs" for other values.
    """

    name: str
    op: str
    state: str


@dataclass(frozen=True)
class Neighbourhood:
    """Values with the edges between them, as pairs of names."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "nodes": [{"name": n.name, "op": n.op, "state": n.state} for n in self.nodes],
            "edges": [list(edge) for edge in self.edges],
        }


def neighbourhood(side: Side, center: str, agreeing: Collection[str]) -> Neighbourhood:
    """The values within `HOPS` operators of one; `agreeing` are the values with an equal on the other side."""
    readers: dict[str, list[str]] = {}
    for name in side.order:
        for read in side.inputs_of[name]:
            readers.setdefault(read, []).append(name)
    found = {center}
    for step in (side.inputs_of, readers):
        nearest = [center]
        for _ in range(HOPS):
            nearest = list(dict.fromkeys(other for name in nearest for other in step.get(name, ())))
            found.update(nearest[: max(MOST - len(found), 0)])
    names = [name for name in side.order if name in found]
    nodes = []
    for name in names:
        node = side.node(name)
        state = "first" if name == center else "agrees" if name in agreeing else "differs"
        nodes.append(GraphNode(name, "" if node is None else node.op_type, state))
    edges = tuple((read, name) for name in names for read in side.inputs_of[name] if read in found)
    return Neighbourhood(tuple(nodes), edges)
