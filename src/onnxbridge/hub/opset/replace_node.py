"""Nodes in the place of another: results take over names, types and uses, what is not needed lets go, names stay unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.infer_types import bodies_of


def taking_over(
    node: ir.Node, written: list[ir.Node], results: Sequence[Any], writer: Builder, version: int
) -> list[ir.Node]:
    """The nodes that are needed of those written for a node; from here on their results are the node's outputs.

    Raises:
        Unsupported: if an output that is used has no result; nothing is changed then.
    """
    written = list(written)
    made = {id(v) for n in written for v in n.outputs}
    pairs: list[tuple[ir.Value, ir.Value]] = []
    for i, output in enumerate(node.outputs):
        if i >= len(results) or results[i] is None:
            if output.uses() or output.is_graph_output():
                raise Unsupported(f"opset {version} does not give output {i}")
            continue
        if not output.name:
            continue
        result = writer.constant(results[i])
        if id(result) not in made or any(result is r for _, r in pairs):
            result = writer.identity(result)  # an output of the graph must come from a node
            written += writer.take()
        pairs.append((output, result))
    written = _alive(written, {id(r) for _, r in pairs})
    for output, result in pairs:
        _take_over(output, result)
    return written


def named(node: ir.Node, written: list[ir.Node], writer: Builder, node_names: set[str], there: Iterable[ir.Graph]) -> None:
    """Give values and nodes written for a node names after its own; graphs that are `there` have theirs."""
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
        new.metadata_props.update(node.metadata_props)


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


def _alive(nodes: list[ir.Node], results: set[int]) -> list[ir.Node]:
    """The nodes without those that nothing uses; these let go of their inputs."""
    kept = []
    for node in reversed(nodes):
        if any(id(v) in results or v.uses() for v in node.outputs):
            kept.append(node)
        else:
            let_go(node)
    return kept[::-1]


def let_go(node: ir.Node) -> None:
    """Take a node's hands off what it used, in the graphs inside it too."""
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)
    for graph in bodies_of(node):
        for inner in graph:
            let_go(inner)


def _take_over(old: ir.Value, new: ir.Value) -> None:
    name = old.name
    if old.type is not None:
        new.type = old.type
    if old.shape is not None:
        new.shape = old.shape
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name
