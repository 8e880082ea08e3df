"""Merges a Concat whose result is an operand of another Concat."""

from __future__ import annotations

import onnx_ir as ir


class MergeConcats(ir.passes.InPlacePass):
    """Replaces an operand by the operands of the Concat that computes it, along the same axis, if it has no other use."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        merged = [_merge(node) for node in list(model.graph.all_nodes()) if axis_of(node) is not None]
        return ir.passes.PassResult(model, modified=any(merged))


def axis_of(node: ir.Node | None) -> int | None:
    """The axis of a Concat, from 0; None for other nodes and where it depends on an unknown rank."""
    if node is None or node.op_type != "Concat" or node.domain or "axis" not in node.attributes:
        return None
    axis, shape = node.attributes["axis"].as_int(), node.outputs[0].shape
    if axis >= 0:
        return axis
    return axis + len(shape) if shape is not None else None


def _merge(node: ir.Node) -> bool:
    """Merge the operands of a Concat into the Concat that uses it."""
    result = node.outputs[0]
    uses = tuple(result.uses())
    if len(uses) != 1 or result.is_graph_output():
        return False
    user, index = uses[0].node, uses[0].idx
    if axis_of(user) is None or axis_of(user) != axis_of(node) or user.graph is not node.graph:
        return False
    operands = [*user.inputs[:index], *node.inputs, *user.inputs[index + 1 :]]
    user.resize_inputs(len(operands))
    for i, operand in enumerate(operands):
        user.replace_input_with(i, operand)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return True
