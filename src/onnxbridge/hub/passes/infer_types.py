"""Type and shape inference of all values of a model read from a file, with constant folding."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import merge_declared
from onnxbridge.hub.ir import fold, inference, provenance
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.named_sizes import name_sizes
from onnxbridge.hub.ir.schemas import plain, schema_of
from onnxbridge.hub.passes import loop_state_shapes
from onnxbridge.hub.passes.constant_reshapes import make_constant
from onnxbridge.hub.passes.inline_branches import inline_branch

if TYPE_CHECKING:
    from onnxbridge.hub.decompositions.microsoft import ContribDecomposer


def infer(model: ir.Model) -> None:
    """Set dtype and shape of every value, in place, replace nodes with constant results by constants, and inline branches whose
    condition is constant.

    ONNX Runtime's own operators are decomposed into ONNX operators.
    """
    from onnxbridge.hub.decompositions import microsoft

    foreign = microsoft.ContribDecomposer(names_in(model)) if microsoft.has_contrib_ops(model) else None
    _infer_graph(model.graph, model.graph, foreign)


def _infer_graph(
    graph: ir.Graph, main: ir.Graph, foreign: ContribDecomposer | None, branch: bool = False, trial: bool = False
) -> None:
    """Infer a graph. A branch that is not executed may be inconsistent with the actual shapes: there shapes stay unknown.

    A `trial` is a copy of a loop body with assumed shapes; loops in it have no trials of their own, whose number would be
    exponential in their depth.
    """
    nodes = deque(graph)
    while nodes:
        node = nodes.popleft()
        if foreign is not None and foreign.put(graph, node):
            continue
        inlined = inline_branch(node, main)
        if inlined is not None:
            nodes.extendleft(reversed(inlined))
            continue
        _infer_bodies(node, main, foreign, branch, trial)
        make_constant(node)
        declared = [(o.type, o.shape) for o in node.outputs]
        try:
            inference.infer(schema_of(node.op_type, node.domain), node)
        except ValueError:  # a custom operator: the declared types are kept
            continue
        except inference.Contradiction as e:
            if not branch:
                raise inference.Contradiction(f"node {node.name!r}: {e}") from e
            inference.by_type_variable(schema_of(node.op_type, node.domain), node)
        for output, (declared_type, shape) in zip(node.outputs, declared, strict=True):
            output.type = output.type or declared_type
            output.shape = merge_declared(output.shape, shape)
        name_sizes(node)
        _fold(graph, node)


def _infer_bodies(node: ir.Node, main: ir.Graph, foreign: ContribDecomposer | None, branch: bool, trial: bool) -> None:
    for attr in node.attributes.values():
        if attr.type != ir.AttributeType.GRAPH:
            continue
        body = attr.as_graph()
        attrs = {a.name: plain(a) for a in node.attributes.values() if a.type != ir.AttributeType.GRAPH}
        if node.op_type in ("Loop", "Scan") and not any(name.endswith("_axes") for name in attrs):
            for inner, (_, outer) in zip(body.inputs, inference.body_inputs(node.op_type, node.inputs, attrs), strict=False):
                inner.type = inner.type or outer.type
                inner.shape = outer.shape if inner.shape is None and node.op_type == "Scan" else inner.shape
        if node.op_type == "Loop" and not trial:
            loop_state_shapes.declare_kept_shapes(node, body, lambda g: _infer_graph(g, main, foreign, branch, trial=True))
        _infer_graph(body, main, foreign, branch or node.op_type == "If", trial)


def _fold(graph: ir.Graph, node: ir.Node) -> None:
    # a graph output must stay the output of a node
    known = None if any(o.is_graph_output() for o in node.outputs) else fold.fold(node)
    if known is None:
        return
    for output, array in zip(node.outputs, known, strict=True):
        name = output.name or ""
        tensor = ir.tensor(array, dtype=output.dtype, name=name)
        provenance.inherit_state(tensor, [v.const_value for v in node.inputs if v is not None and not v.meta.get(fold.COMPUTED)])
        folded = ir.Value(name=name, type=output.type, shape=ir.Shape(list(array.shape)), const_value=tensor)
        fold.record_formula(folded, node)
        output.replace_all_uses_with(folded)
        output.name = None
        graph.register_initializer(folded)
    graph.remove(node, safe=True)
