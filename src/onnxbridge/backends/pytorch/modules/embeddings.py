"""Embedding layers of the source model, without the code for negative indices."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx, nn

from onnxbridge.backends.pytorch.modules.module_paths import module_path
from onnxbridge.backends.pytorch.modules.peephole import drop_unused
from onnxbridge.backends.pytorch.ops.indexing import wrap_negative


def look_up(graph: fx.Graph, classes: Mapping[str, str]) -> None:
    """Remove the code for negative indices before embedding layers of the source model, which never have any.

    `classes` maps the paths of all other modules to their classes.
    """
    for node in graph.nodes:
        if node.target is not nn.functional.embedding:
            continue
        indices, weight = node.args[:2]
        path = module_path(node)
        own = path and path not in classes and weight.op == "get_attr" and weight.target == f"{path}.weight"
        if own and isinstance(indices, fx.Node) and indices.target is wrap_negative:
            node.args = (indices.args[0], *node.args[1:])
    drop_unused(graph)
