"""What is added to each channel behind a convolution, taken into it as its bias."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.provenance import inherit_state
from onnxbridge.hub.ir.replacement import take_over
from onnxbridge.hub.passes.match import behind


def take_biases(model: ir.Model) -> None:
    """Take every constant that is added to the channels of a convolution without a bias into it, in place.

    The channels may have been moved in between, if nobody else reads what the convolution gives.
    """
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Add" and not node.domain:
            for i in (0, 1):
                if _take(node, node.inputs[i], node.inputs[1 - i]):
                    break


def _take(node: ir.Node, value: ir.Value | None, added: ir.Value | None) -> bool:
    array, result, channel = static(added), behind(value), 1
    layer = result.producer() if result is not None else None
    if layer is not None and layer.op_type == "Transpose" and "perm" in layer.attributes and not layer.domain:
        channel = list(layer.attributes["perm"].as_ints()).index(1)
        layer = behind(layer.inputs[0]).producer()
    if layer is None or layer.op_type not in ("Conv", "ConvTranspose") or layer.domain or layer.graph is not node.graph:
        return False
    if array is None or added is None or value is None or value.shape is None or any(v is not None for v in layer.inputs[2:]):
        return False
    channels = layer.outputs[0].shape[1] if layer.outputs[0].shape is not None else None
    rank = len(value.shape)
    shape = [1] * (rank - array.ndim) + list(array.shape)
    if len(shape) != rank or shape != [channels if i == channel else 1 for i in range(rank)] or not _alone(layer, node):
        return False
    bias = added
    if array.ndim != 1:
        name = f"{added.name}.reshape"
        tensor = ir.tensor(array.reshape(-1), name=name)
        inherit_state(tensor, [added.const_value])
        bias = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape([array.size]), const_value=tensor)
        node.graph.register_initializer(bias)
    layer.resize_inputs(3)
    layer.replace_input_with(2, bias)
    take_over(node.outputs[0], value)
    node.graph.remove(node, safe=True)
    return True


def _alone(layer: ir.Node, end: ir.Node) -> bool:
    """Whether what a layer gives is read on the way to a node only."""
    while layer is not end:
        (output,) = layer.outputs
        uses = tuple(output.uses())
        if output.is_graph_output() or len(uses) != 1:
            return False
        layer = uses[0].node
    return True
