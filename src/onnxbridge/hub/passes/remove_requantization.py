"""Removes the second of two quantizations with the same scale between which elements are only moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array

_MOVED_INPUTS: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys([
        "Identity", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Gather", "GatherElements", "GatherND",
        "Expand", "Tile",
    ], (0,)),
    "ScatterND": (0, 2), "ScatterElements": (0, 2), "Concat": None,
}  # fmt: skip
_SMALLEST_SCALE = 1e-30  # of smaller ones, the products are no longer exact to a few roundings


def remove_requantization(model: ir.Model) -> None:
    """Move quantized values instead of dequantized ones where they are quantized in the same way afterwards, in place."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "QuantizeLinear" and not node.domain and node.graph is not None:
            parameters = _parameters(node)
            region: dict[ir.Node, None] = {}
            if parameters is not None and _moves_quantized(node.inputs[0], parameters, node.graph, region):
                _move_quantized(node, region)


def _parameters(node: ir.Node) -> tuple[Any, Any, Any] | None:
    """Scale, zero point and dtype of a quantization with one scale; None for others."""
    quantized = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    arrays: list[Any] = [constant_array(v) for v in node.inputs[1:] if v is not None]
    if quantized is None or quantized.dtype is None or quantized.dtype.itemsize > 2 or set(node.attributes) - {"axis"}:
        return None
    if not arrays or any(a is None or a.size != 1 for a in arrays) or quantized.is_graph_output():
        return None
    scale, zero = (*(a.reshape(()) for a in arrays), 0)[:2]
    return (float(scale), int(zero), quantized.dtype) if scale.dtype == np.float32 and scale > _SMALLEST_SCALE else None


def _moves_quantized(value: ir.Value | None, wanted: Any, graph: Any, region: dict[ir.Node, None]) -> bool:
    """Whether a value is made of dequantized values with these parameters; the nodes that move them are added to `region`."""
    node = value.producer() if value is not None else None
    if value is None or node is None or node.domain or node.graph is not graph:
        return False
    if node.op_type == "DequantizeLinear":
        return bool(_parameters(node) == wanted)
    if node.op_type not in _MOVED_INPUTS or len(value.uses()) != 1 or value.is_graph_output() or "reduction" in node.attributes:
        return False
    region[node] = None
    return all(_moves_quantized(v, wanted, graph, region) for v in _moved(node))


def _moved(node: ir.Node) -> list[ir.Value | None]:
    indices = _MOVED_INPUTS[node.op_type]
    return list(node.inputs) if indices is None else [node.inputs[i] for i in indices]


def _move_quantized(quantize: ir.Node, region: dict[ir.Node, None]) -> None:
    quantized = quantize.outputs[0]
    for node in region:
        indices = _MOVED_INPUTS[node.op_type]
        for i in range(len(node.inputs)) if indices is None else indices:
            source = node.inputs[i].producer()  # type: ignore[union-attr]  # found before
            if source is not None and source.op_type == "DequantizeLinear":
                node.replace_input_with(i, source.inputs[0])
        node.outputs[0].type = quantized.type
    source = quantize.inputs[0].producer()  # type: ignore[union-attr]
    assert source is not None
    result = source.inputs[0] if source.op_type == "DequantizeLinear" else source.outputs[0]
    assert result is not None and quantize.graph is not None
    quantized.replace_all_uses_with(result)
    quantize.graph.remove(quantize, safe=True)
