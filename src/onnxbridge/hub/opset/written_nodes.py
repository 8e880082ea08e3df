"""Unique names for nodes that adapters wrote, and registration of their constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.ir.unique_name import unique_name
from onnxbridge.hub.opset import schema_versions


def namer(
    node: ir.Node, writer: Builder, node_names: set[str], named: Collection[ir.Graph] = ()
) -> Callable[[list[ir.Node]], None]:
    """A function that names the nodes written for a node, and their values, after it; graphs in `named` are skipped."""
    return lambda written: _name(node, written, writer, node_names, named)


def _name(node: ir.Node, written: list[ir.Node], writer: Builder, node_names: set[str], named: Collection[ir.Graph]) -> None:
    stem = next((v.name for v in node.outputs if v.name), node.name or node.op_type)
    for new in written:
        for i, value in enumerate(new.outputs):
            # ONNX Runtime crashes if the output of a loop state is omitted
            needed = value.uses() or value.is_graph_output() or bodies_of(new) or not schema_versions.is_optional_output(new, i)
            if not value.name and needed:
                value.name = writer.unique(f"{stem}/{new.op_type}")
            elif not value.name:
                value.name = ""
        new.name = (
            node.name if new is written[-1] and node.name else unique_name(f"{node.name or stem}/{new.op_type}", node_names)
        )
        for part in bodies_of(new):
            if part in named:
                continue
            for inside in (part, *part.subgraphs()):
                for each in inside:
                    each.name = unique_name(f"{node.name or stem}/{each.op_type}", node_names)


def register_constants(owner: ir.Graph, function: bool, names: set[str], node_names: set[str]) -> None:
    """Register the constants that adapters created: as initializers of the main graph, or as Constant nodes of a function.

    Subgraphs of operators of other domains are treated as functions, since it is unknown which outer values they may use.
    """
    created: dict[tuple[int, int], ir.Value] = {}
    for scope, node, i, value in list(_unregistered(owner, owner)):
        if scope is owner and not function:
            if not value.is_initializer():
                owner.register_initializer(value)
            continue
        if (id(scope), id(value)) not in created:
            assert value.const_value is not None and value.name
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
            constant.name = unique_name(f"{value.name}/Constant", node_names)
            name = value.name if function and scope is owner else unique_name(value.name, names)
            constant.outputs[0].name, constant.outputs[0].type = name, value.type
            created[id(scope), id(value)] = constant.outputs[0]
            scope.insert_before(scope[0], constant)
        node.replace_input_with(i, created[id(scope), id(value)])


def unused_initializers(graph: ir.Graph) -> set[ir.Value]:
    """The unused initializers of a graph and its subgraphs; those that are inputs count as used."""
    initializers = [v for g in (graph, *graph.subgraphs()) for v in g.initializers.values()]
    return {v for v in initializers if not (v.uses() or v.is_graph_output() or v.is_graph_input())}


def drop_initializers(graph: ir.Graph, values: set[ir.Value]) -> None:
    """Remove initializers from the graph and its subgraphs."""
    for part in (graph, *graph.subgraphs()):
        for name in [name for name, value in part.initializers.items() if value in values]:
            del part.initializers[name]


def _unregistered(graph: ir.Graph, scope: ir.Graph) -> Iterable[tuple[ir.Graph, ir.Node, int, ir.Value]]:
    """Every use of a constant that belongs to no graph, with the graph where it should be defined."""
    for node in graph:
        for i, v in enumerate(node.inputs):
            if v is not None and v.const_value is not None and v.producer() is None and not v.is_initializer():
                yield scope, node, i, v
        for body in bodies_of(node):
            yield from _unregistered(body, scope if node.domain in ("", "ai.onnx") else body)
