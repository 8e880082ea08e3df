"""Removes identities."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import merge_declared


class RemoveIdentities(ir.passes.InPlacePass):
    """Replaces every Identity by its input, also in subgraphs.

    An Identity is kept if its result is a graph output that needs a node: its input is a graph input, a weight, another output,
    or a value of an outer graph.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        identities = [node for node in model.graph.all_nodes() if node.op_type == "Identity" and not node.domain]
        dropped = [_remove(node) for node in identities]
        return ir.passes.PassResult(model, modified=any(dropped))


def _remove(node: ir.Node) -> bool:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    if source is None or graph is None:
        return False
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
    if source.type is None:
        source.type = result.type
    source.shape = merge_declared(source.shape, result.shape)
    name = result.name if result.is_graph_output() else source.name
    ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    source.name = name
    return True
