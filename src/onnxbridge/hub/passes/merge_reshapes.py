"""Merges a Reshape into the one after it."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array

_KEEPS_ELEMENTS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})


class MergeReshapes(ir.passes.InPlacePass):
    """Lets a Reshape to a constant shape read what the operators before it reshape, if nothing else uses their result."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        changed = [_merge(node) for node in model.graph.all_nodes() if node.op_type == "Reshape" and not node.domain]
        return ir.passes.PassResult(model, modified=any(changed))


def _merge(node: ir.Node) -> bool:
    shape = constant_array(node.inputs[1])
    if shape is None or (shape == 0).any():  # 0 may mean a size of the input
        return False
    value = node.inputs[0]
    while (before := _before(value, node.graph)) is not None:
        value = before
    changed = value is not node.inputs[0]
    if changed:
        node.replace_input_with(0, value)
    return changed


def _before(value: ir.Value | None, graph: ir.Graph | ir.Function | None) -> ir.Value | None:
    """The value that an operator reshapes to this one, which has no other uses."""
    producer = value.producer() if value is not None else None
    if value is None or producer is None or producer.graph is not graph or value.is_graph_output() or len(value.uses()) != 1:
        return None
    return producer.inputs[0] if producer.op_type in _KEEPS_ELEMENTS and not producer.domain else None
