"""All graphs of a model: the main one, the functions' and those inside nodes; and what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx_ir as ir


def every_graph(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph, each function's, and after each the graphs inside its nodes."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        yield from graph.subgraphs()


def names_in(model: ir.Model) -> set[str]:
    """The names of all values."""
    found: set[str] = set()
    for graph in every_graph(model):
        found |= {str(v.name) for v in (*graph.inputs, *graph.initializers.values(), *(o for n in graph for o in n.outputs))}
    return found


def constants_in(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The constants that nodes and the graphs inside them read, and that no graph holds yet."""
    found: dict[ir.Value, None] = {}
    for node in nodes:
        read = [v for v in node.inputs if v is not None and v.const_value is not None and v.producer() is None]
        found |= dict.fromkeys(v for v in read if not v.is_initializer())
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found |= dict.fromkeys(constants_in(attribute.as_graph()))
    return list(found)


def replace(
    graph: ir.Graph, node: ir.Node, written: Sequence[ir.Node], results: Mapping[int, ir.Value], holder: ir.Graph
) -> None:
    """Put nodes in the place of one, from where it came; `results` stand for its outputs, and take over their names.

    `holder` gets the constants that the nodes use.
    """
    for new in written:
        new.metadata_props.update(node.metadata_props)
    graph.insert_before(node, written)
    for value in constants_in(written):
        holder.register_initializer(value)
    for i, value in results.items():
        outer = node.outputs[i]
        name, outer.name = outer.name, None
        outer.replace_all_uses_with(value, replace_graph_outputs=True)
        value.name = name
    graph.remove(node, safe=True)
