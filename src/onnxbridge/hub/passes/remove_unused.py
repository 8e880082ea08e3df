"""Removes nodes, and optional outputs of nodes, that nothing reads."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from onnxbridge.hub.ir.unique_name import unique_name

_PRESENT = (1, 2)
"""The outputs present_key and present_value of Attention, which ONNX allows only together."""


class RemoveUnused(ir.passes.InPlacePass):
    """onnx_ir's pass, except that of two outputs that ONNX allows only together, both stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        modified = common.RemoveUnusedNodesPass()(model).modified
        used = {v.name for n in model.graph.all_nodes() for v in (*n.inputs, *n.outputs) if v is not None and v.name}
        for node in model.graph.all_nodes():
            if node.op_type == "Attention" and not node.domain and any(_is_there(node, i) for i in _PRESENT):
                node.resize_outputs(max(len(node.outputs), _PRESENT[-1] + 1))
                for i in _PRESENT:
                    if not _is_there(node, i):
                        node.outputs[i].name = unique_name(f"{node.outputs[0].name}_unused", used)
        return ir.passes.PassResult(model, modified)


def _is_there(node: ir.Node, index: int) -> bool:
    return index < len(node.outputs) and bool(node.outputs[index].name)
