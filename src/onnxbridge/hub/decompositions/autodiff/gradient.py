"""Gradient nodes written out: reverse mode over the nodes between the tensors they name, in ONNX's own operators.

So whatever runs the result needs no derivative of its own, and a gradient can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported
from onnxbridge.hub import passes
from onnxbridge.hub.decompositions.autodiff.vjp_rules import derivative
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.replacement import replace
from onnxbridge.hub.ir.schemas import plain

DOMAIN = "ai.onnx.preview.training"
Values = dict[ir.Value, ir.Value]


def present(model: ir.Model) -> bool:
    """Whether the model has a Gradient node."""
    return any(node.op_type == "Gradient" and node.domain == DOMAIN for graph in every_graph(model) for node in graph)


def write_out(model: ir.Model) -> None:
    """Put operators in the place of the Gradient nodes of a hub model's main graph, in place.

    Raises:
        ConversionError: naming each operator in the way that has no derivative here.
    """
    passes.infer(model)
    problems: list[Problem] = []
    for node in list(model.graph):
        if node.op_type == "Gradient" and node.domain == DOMAIN:
            try:
                _write_out(model.graph, node)
            except Unsupported as e:
                problems.append(Problem("Gradient", e.reason, e.hint, (source_locations.read(node),)))
    if problems:
        raise ConversionError("Gradient in ONNX's operators", problems)


def _write_out(graph: ir.Graph, node: ir.Node) -> None:
    named = {v.name: v for v in (*graph.inputs, *graph.initializers.values(), *(o for n in graph for o in n.outputs))}
    xs, zs = (node.attributes[n].as_strings() if n in node.attributes else () for n in ("xs", "zs"))
    target = node.attributes["y"].as_string()
    unknown = [n for n in (*xs, *zs, target) if n not in named]
    if unknown:
        raise Unsupported(f"the graph has no tensor {unknown[0]!r}")
    op = Builder(names={str(n) for n in named})
    given = {named[n]: v for n, v in zip((*xs, *zs), node.inputs, strict=True) if v is not None}
    path = _between(given, named[target])
    at = _evaluated(op, path, given)
    gradients = _backwards(op, path, at, named[target])
    results: list[ir.Value] = []
    for name in xs:
        x = at[named[name]]
        found = gradients.get(named[name]) or op.Expand(op.CastLike(0.0, x), op.Shape(x))
        results.append(found)
    op.name_rest(node.name or "Gradient")
    replace(node, op.take(), results, op, graph)


def _between(start: Mapping[ir.Value, ir.Value], end: ir.Value) -> list[ir.Node]:
    """The nodes by which `end` follows from the starting values, in order."""
    found: list[ir.Node] = []
    seen: set[ir.Node] = set()
    # (node, whether its inputs have been looked at)
    waiting: list[tuple[ir.Node | None, bool]] = [(None if end in start else end.producer(), False)]
    while waiting:
        node, ready = waiting.pop()
        if node is None or (node in seen and not ready):
            continue
        if ready:
            found.append(node)
            continue
        seen.add(node)
        waiting.append((node, True))
        waiting += [(v.producer(), False) for v in node.inputs if v is not None and v not in start]
    return found


def _evaluated(op: Builder, path: Sequence[ir.Node], given: Mapping[ir.Value, ir.Value]) -> Values:
    """Each value on the path as it is at the given inputs: itself where these are the named tensors, else written again."""
    at = dict(given)
    for node in path:
        inputs = [None if v is None else at.get(v, v) for v in node.inputs]
        if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            continue
        attrs = {a.name: plain(a) for a in node.attributes.values()}
        made = op.call(node.op_type, *inputs, outputs=len(node.outputs), domain=node.domain, **attrs)
        at.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    for node in path:
        for v in (*node.inputs, *node.outputs):
            if v is not None:
                at.setdefault(v, v)
    return at


def _backwards(op: Builder, path: Sequence[ir.Node], at: Values, target: ir.Value) -> Values:
    """The gradient of the sum of the target's elements with respect to every value on the path that it depends on smoothly."""
    end = at.setdefault(target, target)
    gradients: Values = {target: op.Expand(op.CastLike(np.float32(1), end), op.Shape(end))}
    for node in reversed(path):
        g = gradients.get(node.outputs[0])
        if g is None:
            continue
        if node.op_type not in derivative or node.domain:
            raise Unsupported(f"{node.op_type} has no derivative here")
        inputs = [None if v is None else at[v] for v in node.inputs]
        attrs = {a.name: plain(a) for a in node.attributes.values()}
        parts = derivative[node.op_type].lower(op, g, *inputs, **attrs)
        for v, part in zip(node.inputs, parts, strict=False):
            if v is None or part is None:
                continue
            if v.dtype is None:
                raise Unsupported(f"the type of {v.name!r} is not known")
            if v.dtype.is_floating_point():
                gradients[v] = op.Add(gradients[v], part) if v in gradients else part
    return gradients
