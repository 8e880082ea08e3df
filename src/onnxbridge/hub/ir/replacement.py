"""Nodes in place of another one: results take over names, types and uses, and producers that nothing uses are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of, constants_in


def replace(
    node: ir.Node,
    written: Sequence[ir.Node],
    results: Sequence[Any],
    writer: Builder,
    holder: ir.Graph | None = None,
    name: Callable[[list[ir.Node]], None] | None = None,
) -> list[ir.Node]:
    """Put what `writer` wrote in place of a node; gives the nodes of it that are needed. `results` stand for the node's outputs.

    `holder` gets the constants that the nodes use; without it the caller gives them a home. `name` names what is nameless by
    then; afterwards the graph does.

    Raises:
        Unsupported: if an output that is used has no result; nothing is changed then.
    """
    graph = node.graph
    assert graph is not None
    nodes = list(written)
    made = {id(v) for n in nodes for v in n.outputs}
    pairs: list[tuple[ir.Value, ir.Value]] = []
    for i, output in enumerate(node.outputs):
        if i >= len(results) or results[i] is None:
            if output.uses() or output.is_graph_output():
                raise Unsupported(f"nothing gives its output {i}")
            continue
        if not output.name:
            continue
        result = writer.constant(results[i])
        if id(result) not in made or any(result is r for _, r in pairs):
            result = writer.identity(result)  # an output of the graph must come from a node
            nodes += writer.take()
        pairs.append((output, result))
    nodes = _needed(nodes, {id(r) for _, r in pairs})
    for new in nodes:
        new.metadata_props.update(node.metadata_props)
    for output, result in pairs:
        take_over(output, result)
    if name is not None:
        name(nodes)
    graph.insert_before(node, nodes)
    graph.remove(node, safe=True)
    for value in constants_in(nodes) if holder is not None else ():
        holder.register_initializer(value)  # type: ignore[union-attr]
    return nodes


def passes_on(node: ir.Node) -> bool:
    """Whether a node only gives a value on, as `replace` writes it where a result comes from elsewhere."""
    return node.op_type == "Identity" and not node.domain


def take_over(old: ir.Value, new: ir.Value) -> None:
    """Let a value have the name, the uses, and what is declared of another one."""
    name = old.name
    if old.type is not None:
        new.type = old.type
    new.shape = _declared(old.shape, new.shape)
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name


def _declared(old: ir.Shape | None, new: ir.Shape | None) -> ir.Shape | None:
    """The shape that was declared, with the sizes that only the new one knows."""
    if old is None or new is None or len(old) != len(new):
        return new if old is None else old
    return ir.Shape([n if isinstance(n, int) and not isinstance(o, int) else o for o, n in zip(old, new, strict=True)])


def _needed(nodes: Sequence[ir.Node], results: set[int]) -> list[ir.Node]:
    """The nodes without those that nothing uses; these let go of their inputs."""
    found = []
    for node in reversed(nodes):
        if any(id(v) in results or v.uses() for v in node.outputs):
            found.append(node)
        else:
            let_go(node)
    return found[::-1]


def let_go(node: ir.Node) -> None:
    """Let a node, and those in the graphs inside it, use nothing any more."""
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)
    for graph in bodies_of(node):
        for inner in graph:
            let_go(inner)
