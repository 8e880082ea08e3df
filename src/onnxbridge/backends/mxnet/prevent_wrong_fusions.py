"""Keeps MXNet from fusing layers whose results have several uses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

_FUSED = frozenset({"Activation", "LeakyReLU", "abs", "clip", "exp", "sqrt", "square"})


def separate_shared_results(nodes: list[dict[str, Any]], heads: Iterable[int], unique: Callable[[str], str]) -> None:
    """Put a reshape that changes nothing between a fully connected layer and these operators, if its result has other uses.

    MXNet 1.9 with oneDNN, as `Module` and `bind` run it by default, fuses the layer with such an operator, and gives the fused
    result to the other users of the layer. It removes a copy between them, but not a reshape.
    """
    users: dict[int, list[dict[str, Any] | None]] = defaultdict(list)
    for node in nodes:
        for entry in node["inputs"]:
            users[entry[0]].append(node)
    for head in heads:
        users[head].append(None)
    for index, layer in enumerate(list(nodes)):
        fused = [node for node in users[index] if node is not None and node["op"] in _FUSED]
        if layer["op"] != "FullyConnected" or not fused or len(users[index]) == 1:
            continue
        name = unique(f"{layer['name']}/Reshape")
        nodes.append({"op": "Reshape", "name": name, "attrs": {"shape": "(-2,)"}, "inputs": [[index, 0, 0]]})
        for node in fused:
            node["inputs"] = [[len(nodes) - 1, *entry[1:]] if entry[0] == index else entry for entry in node["inputs"]]
