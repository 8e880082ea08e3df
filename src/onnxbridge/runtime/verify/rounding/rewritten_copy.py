"""Copies of a model with some of its operators written otherwise."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.opset import written_nodes


def rewritten_copy(
    model: ir.Model, is_chosen: Callable[[ir.Node], bool], rewrite: Callable[[ir.Node, Builder, set[str]], None]
) -> ir.Model | None:
    """A copy in which `rewrite` has changed or replaced each chosen node, None if there is none.

    It gets the node, a builder of new operators, and the names of nodes, to which it adds those of new ones.
    """
    if not any(map(is_chosen, model.graph.all_nodes())):
        return None
    copy = model.clone()
    names = {v.name for g in every_graph(copy) for v in (*g.inputs, *g.initializers.values()) if v.name}
    names |= {v.name for g in every_graph(copy) for node in g for v in node.outputs if v.name}
    node_names = {n.name for g in every_graph(copy) for n in g if n.name}
    for graph in (copy.graph, *copy.graph.subgraphs()):
        for node in filter(is_chosen, list(graph)):
            rewrite(node, Builder(OPSET, names), node_names)
    written_nodes.register_constants(copy.graph, False, names, node_names)
    return copy
