"""Inlining of branches whose condition is known when converting.

The other branch disappears. At the sizes that made the condition constant it is often invalid, as a Squeeze of an axis of size 2
is, and ONNX Runtime refuses a model for that.
"""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import transfer
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.graphs import values_in
from onnxbridge.hub.ir.unique_name import unique_name


def inline_branch(node: ir.Node, main: ir.Graph) -> list[ir.Node] | None:
    """Replace an If with a constant condition by the nodes of its branch, which are returned; None for any other node.

    `main` is the model's main graph, in which the names of values stay unique.
    """
    condition = constant_array(node.inputs[0]) if node.op_type == "If" and not node.domain else None
    if condition is None or condition.size != 1:
        return None
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    branch = node.attributes["then_branch" if condition.reshape(()) else "else_branch"].as_graph()
    node.attributes.clear()
    names = {str(v.name) for each in (main, *main.subgraphs()) for v in values_in(each)}
    for value in values_in(branch):
        if value.producer() is not None:
            value.name = unique_name(value.name or "value", names)
    for value in list(branch.initializers.values()):
        del branch.initializers[str(value.name)]
        value.name = unique_name(str(value.name), names)
        graph.register_initializer(value)
    inlined, results = list(branch), list(branch.outputs)
    branch.outputs.clear()
    branch.remove(inlined)
    graph.insert_before(node, inlined)
    computed = {v for inner in inlined for v in inner.outputs}
    for old, new in zip(node.outputs, results, strict=True):
        if old.is_graph_output() and (new not in computed or new.is_graph_output()):  # an output must come from a node of its own
            inlined.append(ir.node("Identity", [new]))
            graph.insert_before(node, inlined[-1])
            new = inlined[-1].outputs[0]
        if old.is_graph_output():
            transfer(old, new)
        else:
            old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    return inlined
