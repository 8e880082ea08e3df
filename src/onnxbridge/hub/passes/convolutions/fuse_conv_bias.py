"""Fuses a constant added to the channels of a convolution into its bias."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import transfer
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.provenance import inherit_state
from onnxbridge.hub.passes.value_queries import skip_nodes


def fuse_conv_bias(model: ir.Model) -> None:
    """Fuse every constant added to the channels of a convolution without a bias, in place.

    There may be a Transpose in between, if the convolution's result has no other use.
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Add" and not node.domain:
            for i in (0, 1):
                if _fuse(node, node.inputs[i], node.inputs[1 - i]):
                    break


def _fuse(node: ir.Node, value: ir.Value | None, addend: ir.Value | None) -> bool:
    array, result, channel = constant_array(addend), skip_nodes(value), 1
    layer = result.producer() if result is not None else None
    if layer is not None and layer.op_type == "Transpose" and "perm" in layer.attributes and not layer.domain:
        channel = list(layer.attributes["perm"].as_ints()).index(1)
        layer = skip_nodes(layer.inputs[0]).producer()
    if layer is None or layer.op_type not in ("Conv", "ConvTranspose") or layer.domain or layer.graph is not node.graph:
        return False
    if array is None or addend is None or value is None or value.shape is None or any(v is not None for v in layer.inputs[2:]):
        return False
    channels = layer.outputs[0].shape[1] if layer.outputs[0].shape is not None else None
    rank = len(value.shape)
    shape = [1] * (rank - array.ndim) + list(array.shape)
    if len(shape) != rank or shape != [channels if i == channel else 1 for i in range(rank)] or not _has_only_user(layer, node):
        return False
    bias = addend
    if array.ndim != 1:
        name = f"{addend.name}.reshape"
        tensor = ir.tensor(array.reshape(-1), name=name)
        inherit_state(tensor, [addend.const_value])
        bias = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([array.size]), const_value=tensor)
        node.graph.register_initializer(bias)
    layer.resize_inputs(3)
    layer.replace_input_with(2, bias)
    transfer(node.outputs[0], value)
    node.graph.remove(node, safe=True)
    return True


def _has_only_user(layer: ir.Node, end: ir.Node) -> bool:
    """Whether a layer's result is used only by a chain of nodes that ends in `end`."""
    while layer is not end:
        (output,) = layer.outputs
        uses = tuple(output.uses())
        if output.is_graph_output() or len(uses) != 1:
            return False
        layer = uses[0].node
    return True
