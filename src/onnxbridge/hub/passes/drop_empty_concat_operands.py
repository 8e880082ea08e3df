"""Drops operands of Concat that have no elements, such as the rest of a slice that takes everything."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.passes.merge_concats import axis_of


class DropEmptyConcatOperands(ir.passes.InPlacePass):
    """Concat without the operands whose size along its axis is 0. Of a single operand it becomes an Identity."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        dropped = [_drop(node) for node in list(model.graph.all_nodes()) if axis_of(node) is not None]
        return ir.passes.PassResult(model, modified=any(dropped))


def _drop(node: ir.Node) -> bool:
    axis = axis_of(node)
    kept = [v for v in node.inputs if v is None or v.shape is None or axis is None or v.shape[axis] != 0]
    if not kept or len(kept) == len(node.inputs):
        return False
    node.resize_inputs(len(kept))
    for i, operand in enumerate(kept):
        node.replace_input_with(i, operand)
    if len(kept) == 1:
        node.op_type = "Identity"
        node.attributes.clear()
    return True
