"""Embedding layers of the source, which take their indices as they come."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx, nn

from onnxbridge.backends.pytorch.modules.module_paths import place
from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.ops.indexing import from_the_end


def look_up(graph: fx.Graph, classes: Mapping[str, str]) -> None:
    """Give embedding layers of the source their indices as they come: PyTorch's own take none that count from the end.

    `classes` has all modules that are not such layers, by their paths.
    """
    for node in graph.nodes:
        if node.target is not nn.functional.embedding:
            continue
        indices, weight = node.args[:2]
        path = place(node)
        own = path and path not in classes and weight.op == "get_attr" and weight.target == f"{path}.weight"
        if own and isinstance(indices, fx.Node) and indices.target is from_the_end:
            node.args = (indices.args[0], *node.args[1:])
    drop_unused(graph)
