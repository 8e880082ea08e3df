"""Reverse-mode automatic differentiation: replaces Gradient nodes by ONNX operators that compute the gradient.

Runtimes and backends therefore need no autodiff of their own, and gradients can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported
from onnxbridge.hub import passes
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.decompositions.autodiff.vjp_rules import derivative
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.schemas import plain

DOMAIN = "ai.onnx.preview.training"
Values = dict[ir.Value, ir.Value]


def has_gradient_nodes(model: ir.Model) -> bool:
    """Whether the model has a Gradient node."""
    return any(node.op_type == "Gradient" and node.domain == DOMAIN for graph in every_graph(model) for node in graph)


def decompose_gradients(model: ir.Model) -> None:
    """Replace the Gradient nodes of a hub model's main graph, in place.

    Raises:
        ConversionError: naming each operator that cannot be differentiated.
    """
    passes.infer(model)
    problems: list[Problem] = []
    for node in list(model.graph):
        if node.op_type == "Gradient" and node.domain == DOMAIN:
            try:
                _replace_gradient_node(model.graph, node)
            except Unsupported as e:
                problems.append(Problem("Gradient", e.reason, e.hint, (source_locations.read(node),)))
    if problems:
        raise ConversionError("Gradient in ONNX's operators", problems)


def _replace_gradient_node(graph: ir.Graph, node: ir.Node) -> None:
    named = {v.name: v for v in (*graph.inputs, *graph.initializers.values(), *(o for n in graph for o in n.outputs))}
    xs, zs = (node.attributes[n].as_strings() if n in node.attributes else () for n in ("xs", "zs"))
    target = node.attributes["y"].as_string()
    unknown = [n for n in (*xs, *zs, target) if n not in named]
    if unknown:
        raise Unsupported(f"the graph has no tensor {unknown[0]!r}")
    op = Builder(names={str(n) for n in named})
    bindings = {named[n]: v for n, v in zip((*xs, *zs), node.inputs, strict=True) if v is not None}
    nodes = _nodes_between(bindings, named[target])
    values = _evaluate(op, nodes, bindings)
    gradients = _backpropagate(op, nodes, values, named[target])
    results: list[ir.Value] = []
    for name in xs:
        x = values[named[name]]
        gradient = gradients.get(named[name]) or op.Expand(op.CastLike(0.0, x), op.Shape(x))
        results.append(gradient)
    op.name_rest(node.name or "Gradient")
    replace(node, op.take(), results, op, graph)


def _nodes_between(start: Mapping[ir.Value, ir.Value], output: ir.Value) -> list[ir.Node]:
    """The nodes that compute `output` from the `start` values, in topological order."""
    order: list[ir.Node] = []
    seen: set[ir.Node] = set()
    # (node, whether its inputs have been visited)
    stack: list[tuple[ir.Node | None, bool]] = [(None if output in start else output.producer(), False)]
    while stack:
        node, inputs_visited = stack.pop()
        if node is None or (node in seen and not inputs_visited):
            continue
        if inputs_visited:
            order.append(node)
            continue
        seen.add(node)
        stack.append((node, True))
        stack += [(v.producer(), False) for v in node.inputs if v is not None and v not in start]
    return order


def _evaluate(op: Builder, nodes: Sequence[ir.Node], bindings: Mapping[ir.Value, ir.Value]) -> Values:
    """Maps each value on the path to its value for the Gradient node's inputs; nodes are copied only where these differ."""
    values = dict(bindings)
    for node in nodes:
        inputs = [None if v is None else values.get(v, v) for v in node.inputs]
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            continue
        attrs = {a.name: plain(a) for a in node.attributes.values()}
        copied = op.call(node.op_type, *inputs, outputs=len(node.outputs), domain=node.domain, **attrs)
        values.update(zip(node.outputs, copied if isinstance(copied, tuple) else (copied,), strict=True))
    for node in nodes:
        for v in (*node.inputs, *node.outputs):
            if v is not None:
                values.setdefault(v, v)
    return values


def _backpropagate(op: Builder, nodes: Sequence[ir.Node], values: Values, target: ir.Value) -> Values:
    """The gradient of the sum of the target's elements with respect to each floating-point value on the path."""
    output = values.setdefault(target, target)
    gradients: Values = {target: op.Expand(op.CastLike(np.float32(1), output), op.Shape(output))}
    for node in reversed(nodes):
        g = gradients.get(node.outputs[0])
        if g is None:
            continue
        if node.op_type not in derivative or node.domain:
            raise Unsupported(f"{node.op_type} cannot be differentiated: it has no VJP rule")
        inputs = [None if v is None else values[v] for v in node.inputs]
        attrs = {a.name: plain(a) for a in node.attributes.values()}
        input_gradients = derivative[node.op_type].lower(op, g, *inputs, **attrs)
        for v, input_gradient in zip(node.inputs, input_gradients, strict=False):
            if v is None or input_gradient is None:
                continue
            if v.dtype is None:
                raise Unsupported(f"the dtype of {v.name!r} is unknown")
            if v.dtype.is_floating_point():
                gradients[v] = op.Add(gradients[v], input_gradient) if v in gradients else input_gradient
    return gradients
