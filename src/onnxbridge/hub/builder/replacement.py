"""Replaces a node, transferring names, types and uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of, constants_in


def replace(
    node: ir.Node,
    written: Sequence[ir.Node],
    results: Sequence[Any],
    writer: Builder,
    holder: ir.Graph | None = None,
    name: Callable[[list[ir.Node]], None] | None = None,
) -> list[ir.Node]:
    """Replace a node by the nodes in `written`, whose `results` replace the node's outputs; returns the nodes that are used.

    Constants that the nodes use become initializers of `holder`; without it this is left to the caller. `name` names unnamed
    values and nodes before they are inserted; otherwise the graph does.

    Raises:
        Unsupported: if an output that is used has no result; nothing is changed in this case.
    """
    graph = node.graph
    assert graph is not None
    nodes = list(written)
    created = {id(v) for n in nodes for v in n.outputs}
    pairs: list[tuple[ir.Value, ir.Value]] = []
    for i, output in enumerate(node.outputs):
        if i >= len(results) or results[i] is None:
            if output.uses() or output.is_graph_output():
                raise Unsupported(f"its output {i} has no replacement")
            continue
        if not output.name:
            continue
        result = writer.constant(results[i])
        if id(result) not in created or any(result is r for _, r in pairs):
            result = writer.identity(result)  # an output of the graph must come from a node
            nodes += writer.take()
        pairs.append((output, result))
    nodes = _needed(nodes, {id(r) for _, r in pairs})
    for new in nodes:
        new.metadata_props.update(node.metadata_props)
    for output, result in pairs:
        transfer(output, result)
    if name is not None:
        name(nodes)
    graph.insert_before(node, nodes)
    graph.remove(node, safe=True)
    moved = {id(g) for new in nodes for body in bodies_of(new) for g in (body, *body.subgraphs())}
    for body in bodies_of(node):
        for inner in body if id(body) not in moved else ():
            detach(inner)  # so that outer values do not count as used
    for value in constants_in(nodes) if holder is not None else ():
        holder.register_initializer(value)  # type: ignore[union-attr]
    return nodes


def is_identity(node: ir.Node) -> bool:
    """Whether a node is an Identity, as `replace` inserts for results that none of the new nodes computes."""
    return node.op_type == "Identity" and not node.domain


def transfer(old: ir.Value, new: ir.Value) -> None:
    """Transfer the name, type, shape, metadata and uses of `old` to `new`."""
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
    """The declared shape, completed with static sizes of the new one."""
    if old is None or new is None or len(old) != len(new):
        return new if old is None else old
    return ir.Shape([n if isinstance(n, int) and not isinstance(o, int) else o for o, n in zip(old, new, strict=True)])


def merge_declared(inferred: ir.Shape | None, declared: ir.Shape | None) -> ir.Shape | None:
    """The inferred shape, completed with sizes and names that only the file declares."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return inferred if inferred is not None else declared

    def known(dim: object) -> bool:
        return isinstance(dim, int) or getattr(dim, "value", None) is not None

    return ir.Shape([i if known(i) else d for i, d in zip(inferred, declared, strict=True)])


def _needed(nodes: Sequence[ir.Node], results: set[int]) -> list[ir.Node]:
    """The nodes whose results are used; the others are detached from their inputs."""
    found = []
    for node in reversed(nodes):
        if any(id(v) in results or v.uses() for v in node.outputs):
            found.append(node)
        else:
            detach(node)
    return found[::-1]


def detach(node: ir.Node) -> None:
    """Remove all inputs of a node and of the nodes in its subgraphs."""
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)
    for graph in bodies_of(node):
        for inner in graph:
            detach(inner)
