"""Queries over all graphs of a model: the main graph, functions and subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir


def every_graph(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph and each function's graph, each followed by its subgraphs."""
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        yield graph
        yield from graph.subgraphs()


def values_in(graph: ir.Graph) -> Iterator[ir.Value]:
    """The inputs, initializers and node outputs of a graph, without its subgraphs."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def names_in(model: ir.Model) -> set[str]:
    """The names of all values."""
    found: set[str] = set()
    for graph in every_graph(model):
        found |= {str(v.name) for v in values_in(graph)}
    return found


def constants_in(nodes: Iterable[ir.Node]) -> list[ir.Value]:
    """The constants used by nodes and their subgraphs that belong to no graph yet."""
    found: dict[ir.Value, None] = {}
    for node in nodes:
        read = [v for v in node.inputs if v is not None and v.const_value is not None and v.producer() is None]
        found |= dict.fromkeys(v for v in read if not v.is_initializer())
        for graph in bodies_of(node):
            found |= dict.fromkeys(constants_in(graph))
    return list(found)


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """The subgraphs of a node."""
    found = []
    for a in node.attributes.values():
        if a.is_ref():
            continue
        if a.type == ir.AttributeType.GRAPH:
            found.append(a.as_graph())
        elif a.type == ir.AttributeType.GRAPHS:
            found += a.as_graphs()
    return found
