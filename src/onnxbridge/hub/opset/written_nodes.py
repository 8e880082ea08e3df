"""Names and constants of nodes that adapters wrote: names stay unique, and every constant has a home."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import onnx_ir as ir

from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.opset import schema_versions


def namer(
    node: ir.Node, writer: Builder, node_names: set[str], there: Collection[ir.Graph] = ()
) -> Callable[[list[ir.Node]], None]:
    """What gives values and nodes written for a node names after its own; graphs that are `there` have theirs."""
    return lambda written: _name(node, written, writer, node_names, there)


def _name(node: ir.Node, written: list[ir.Node], writer: Builder, node_names: set[str], there: Collection[ir.Graph]) -> None:
    stem = next((v.name for v in node.outputs if v.name), node.name or node.op_type)
    for new in written:
        for i, value in enumerate(new.outputs):
            # ONNX Runtime crashes where a loop leaves out a state that it carries
            wanted = value.uses() or value.is_graph_output() or bodies_of(new) or not schema_versions.may_leave_out(new, i)
            if not value.name and wanted:
                value.name = writer.unique(f"{stem}/{new.op_type}")
            elif not value.name:
                value.name = ""
        new.name = node.name if new is written[-1] and node.name else free(f"{node.name or stem}/{new.op_type}", node_names)
        for part in bodies_of(new):
            if part in there:
                continue
            for inside in (part, *part.subgraphs()):
                for each in inside:
                    each.name = free(f"{node.name or stem}/{each.op_type}", node_names)


def free(name: str, taken: set[str]) -> str:
    """The name itself where no node has it, otherwise the name with a number."""
    label, n = name, 0
    while label in taken:
        n += 1
        label = f"{name}_{n}"
    taken.add(label)
    return label


def keep_constants(owner: ir.Graph, function: bool, names: set[str], node_names: set[str]) -> None:
    """Give the constants that adapters made a home: the main graph's initializers, or nodes at the head of what is a function.

    The graphs inside an operator of another domain count as functions, since what they see from outside is not known.
    """
    made: dict[tuple[int, int], ir.Value] = {}
    for home, node, i, value in list(_loose(owner, owner)):
        if home is owner and not function:
            if not value.is_initializer():
                owner.register_initializer(value)
            continue
        if (id(home), id(value)) not in made:
            assert value.const_value is not None and value.name
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
            constant.name = free(f"{value.name}/Constant", node_names)
            name = value.name if function and home is owner else free(value.name, names)
            constant.outputs[0].name, constant.outputs[0].type = name, value.type
            made[id(home), id(value)] = constant.outputs[0]
            home.insert_before(home[0], constant)
        node.replace_input_with(i, made[id(home), id(value)])


def idle_initializers(graph: ir.Graph) -> set[ir.Value]:
    """The initializers that nothing uses, in the graphs inside it too; those that a caller may give count as used."""
    held = [v for g in (graph, *graph.subgraphs()) for v in g.initializers.values()]
    return {v for v in held if not (v.uses() or v.is_graph_output() or v.is_graph_input())}


def drop_initializers(graph: ir.Graph, values: set[ir.Value]) -> None:
    """Take these initializers out of the graph, and of those inside it."""
    for part in (graph, *graph.subgraphs()):
        for name in [name for name, value in part.initializers.items() if value in values]:
            del part.initializers[name]


def _loose(graph: ir.Graph, home: ir.Graph) -> Iterable[tuple[ir.Graph, ir.Node, int, ir.Value]]:
    """Every use of a constant that no graph holds, and the graph that should."""
    for node in graph:
        for i, v in enumerate(node.inputs):
            if v is not None and v.const_value is not None and v.producer() is None and not v.is_initializer():
                yield home, node, i, v
        for body in bodies_of(node):
            yield from _loose(body, home if node.domain in ("", "ai.onnx") else body)
