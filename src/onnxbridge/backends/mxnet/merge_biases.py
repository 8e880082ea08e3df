"""Merges nodes that MXNet has as one operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any


def merge_biases(nodes: list[dict[str, Any]], heads: Iterable[int]) -> None:
    """Move a bias that is added to a fully connected layer, whose result has no other use, into the layer."""
    uses = Counter(entry[0] for node in nodes for entry in node["inputs"])
    uses.update(heads)
    names = {node["name"] for node in nodes}
    for node in nodes:
        if node["op"] != "_npi_add":
            continue
        for layer, bias in (node["inputs"], node["inputs"][::-1]):
            dense = nodes[layer[0]]
            if uses[layer[0]] == 1 and _has_no_bias(dense) and _is_vector(nodes[bias[0]], dense["attrs"]["num_hidden"]):
                node.update(op="FullyConnected", attrs={**dense["attrs"], "no_bias": "False"}, inputs=[*dense["inputs"], bias])
                if (name := node["name"].removesuffix("/_npi_add")) not in names:
                    names.add(name)
                    node["name"] = name
                break


def _has_no_bias(node: dict[str, Any]) -> bool:
    return bool(node["op"] == "FullyConnected" and node["attrs"].get("no_bias") == "True")


def _is_vector(node: dict[str, Any], size: str) -> bool:
    """Whether a node is a parameter of this one size."""
    return bool(node["op"] == "null" and node["attrs"].get("__shape__") == f"({size},)")
