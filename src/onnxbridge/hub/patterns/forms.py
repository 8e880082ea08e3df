"""The registry of patterns, and the pass that replaces their matches by operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import merge_declared, replace
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.patterns.match import Call, Found, Pattern, Product

Write = Callable[..., ir.Value | None]


@dataclass(frozen=True)
class Form:
    """A pattern of an operator. `write` builds the operator from the named values, or returns None if a condition fails."""

    op_type: str
    pattern: Pattern
    write: Write


_FORMS: dict[str, list[Form]] = {}


def form(op_type: str, *patterns: Call | Product) -> Callable[[Write], Write]:
    """Register a function that builds an operator for matches of the patterns; tried in the order of registration."""

    def register(write: Write) -> Write:
        for pattern in patterns:
            for root in (pattern.op_type,) if isinstance(pattern, Call) else ("Mul", "Div"):
                _FORMS.setdefault(root, []).append(Form(op_type, pattern, write))
        return write

    return register


def canonicalize(
    model: ir.Model, supports: Callable[[str], bool] = lambda op_type: True, *, outermost_first: bool = False
) -> None:
    """Replace matches of patterns by the operators that are supported, in place, in one pass over the nodes.

    Types and shapes must have been inferred. Intermediate results must have no other uses and not be outputs. With
    `outermost_first` the pass goes from the outputs to the inputs, for patterns that contain others of the same operator.
    """
    forms = {root: chosen for root, all_ in _FORMS.items() if (chosen := [f for f in all_ if supports(f.op_type)])}
    writer: Builder | None = None
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [n for n in reversed(graph) if n.op_type in forms] if outermost_first else graph:
            for each in forms.get(node.op_type, ()) if node.graph is graph and not node.domain else ():
                writer = writer or Builder(names=names_in(model))
                if _replace_match(node, each, writer, model.graph):
                    break


def _replace_match(root: ir.Node, each: Form, writer: Builder, holder: ir.Graph) -> bool:
    output, graph = root.outputs[0], root.graph
    assert graph is not None
    for found in each.pattern.match(output, Found()):
        result = each.write(writer, **found.named) if _has_no_other_uses(found, root) else None
        if result is None:
            continue
        if result.shape is not None and output.shape is not None and len(result.shape) != len(output.shape):
            for node in writer.take():  # a constant of rank 1 combined with a scalar
                node.resize_inputs(0)
            continue
        result.type, result.shape = result.type or output.type, merge_declared(result.shape, output.shape)
        writer.name_rest(str(output.name))
        written = writer.take()
        written[-1].name = root.name
        before = {v for node in found.nodes for v in node.inputs if v is not None}
        replace(root, written, [result], writer, holder)
        graph.remove(found.nodes - {root}, safe=True)
        _drop_unused_constants(before)
        _drop_unused([v.producer() for v in found.named.values() if isinstance(v, ir.Value)], graph)
        return True
    return False


def _has_no_other_uses(found: Found, root: ir.Node) -> bool:
    """Whether the results of the matched nodes, except the root's, are used only by them."""
    named = {v.producer() for v in found.named.values() if isinstance(v, ir.Value)}
    if root not in found.nodes or named & found.nodes:
        return False
    inner = found.nodes - {root}
    outputs = [o for node in inner for o in node.outputs]
    here = all(node.graph is root.graph for node in inner)
    return here and not any(o.is_graph_output() or any(user not in found.nodes for user, _ in o.uses()) for o in outputs)


def _drop_unused_constants(values: Iterable[ir.Value]) -> None:
    """Remove constants that only the replaced nodes used: ONNX Runtime warns of each one that is left."""
    for value in values:
        if value.is_initializer() and value.graph is not None and not value.uses() and not value.is_graph_output():
            value.graph.initializers.pop(value.name or "")


def _drop_unused(nodes: list[ir.Node | None], graph: ir.Graph) -> None:
    """Remove unused nodes and, recursively, the nodes that only they used."""
    while nodes:
        node = nodes.pop()
        if node is None or node.graph is not graph or any(o.uses() or o.is_graph_output() for o in node.outputs):
            continue
        nodes += [v.producer() for v in node.inputs if v is not None]
        graph.remove(node, safe=True)
