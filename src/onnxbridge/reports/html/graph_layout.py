"""Positions for the drawing of a part of a graph: layers from top to bottom, in the order of execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WIDTH, HEIGHT = 190, 44
"""The size of a node, in pixels."""
_GAP_X, _GAP_Y, _MARGIN = 18, 36, 8
_MOST_LETTERS = 24


def graph_layout(graph: Mapping[str, Any]) -> dict[str, Any]:
    """Where the nodes and edges are drawn.

    Returns:
        `width` and `height` of the drawing; `nodes` with `x`, `y` (of the upper left corner), `op`, `label` and `state`; `edges`
        with the two ends.
    """
    import networkx as nx

    names = {n["name"] for n in graph["nodes"]}
    directed = nx.DiGraph()
    directed.add_nodes_from(n["name"] for n in graph["nodes"])
    directed.add_edges_from((a, b) for a, b in graph["edges"] if a in names and b in names)
    layers = [list(layer) for layer in nx.topological_generations(directed)]
    order = {name: i for i, name in enumerate(n["name"] for n in graph["nodes"])}
    columns = max(map(len, layers), default=1)
    width = columns * (WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    corner: dict[str, tuple[float, float]] = {}
    for row, layer in enumerate(layers):
        placed = sorted(layer, key=lambda name: (_mean_x(directed, name, corner), order[name]))
        start = (width - (len(layer) * (WIDTH + _GAP_X) - _GAP_X)) / 2
        for column, name in enumerate(placed):
            corner[name] = (start + column * (WIDTH + _GAP_X), _MARGIN + row * (HEIGHT + _GAP_Y))
    nodes = [
        {**n, "x": corner[n["name"]][0], "y": corner[n["name"]][1], "label": _shortened(n["name"])} for n in graph["nodes"]
    ]
    edges = [
        {"x1": corner[a][0] + WIDTH / 2, "y1": corner[a][1] + HEIGHT, "x2": corner[b][0] + WIDTH / 2, "y2": corner[b][1]}
        for a, b in directed.edges
    ]
    height = len(layers) * (HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    return {"width": width, "height": height, "nodes": nodes, "edges": edges}


def _mean_x(graph: Any, name: str, corner: Mapping[str, tuple[float, float]]) -> float:
    """A node stands below those that it reads."""
    found = [corner[other][0] for other in graph.predecessors(name) if other in corner]
    return sum(found) / len(found) if found else 0.0


def _shortened(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[:10]}…{name[-(_MOST_LETTERS - 11):]}"
