"""Decomposes a BatchNormalization between two transposes into a product and a sum, which removes the transposes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.provenance import inherit_state
from onnxbridge.hub.passes.transposes.propagate_transposes import inverse
from onnxbridge.hub.passes.transposes.transpose_rules import UNARY


def decompose_batch_norm(model: ir.Model) -> None:
    """Decompose, in place, every BatchNormalization whose channels are transposed to the second axis for it and back.

    ONNX supports the channels on that axis only, and two transposes cost more than the operator saves.
    """
    names = {str(v.name) for g in (model.graph, *model.graph.subgraphs()) for v in g.initializers.values()}
    for node in list(model.graph.all_nodes()):
        if node.op_type == "BatchNormalization" and not node.domain and len(node.outputs) == 1:
            _decompose(node, model.graph, names)


def _decompose(node: ir.Node, root: ir.Graph, names: set[str]) -> None:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    known = [constant_array(v) for v in node.inputs[1:]]
    if before is None or before.op_type != "Transpose" or "perm" not in before.attributes or any(a is None for a in known):
        return
    perm = tuple(before.attributes["perm"].as_ints())
    output, x, elementwise = node.outputs[0], before.inputs[0], []
    while (next_ := _elementwise_user(output)) is not None:
        elementwise.append(next_)
        output = next_.outputs[0]
    after = [use.node for use in output.uses()]
    several = len(after) > 1 and any(n.outputs[0].is_graph_output() for n in after)  # a value cannot have two output names
    if output.is_graph_output() or not after or several or x is None or any(not _is_inverse(n, perm) for n in after):
        return
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    scale, shift, mean, variance = (np.asarray(a, np.float64) for a in known)
    factor = scale / np.sqrt(variance + epsilon)
    shape = [-1] + [1] * (len(perm) - 1 - perm[1])
    dtype = node.inputs[1].dtype.numpy()  # type: ignore[union-attr]  # it has numbers

    def constant(array: np.ndarray, name: str, source: ir.Value | None) -> ir.Value:
        label = name if name not in names else f"{name}_{len(names)}"
        names.add(label)
        tensor = ir.tensor(array.reshape(shape).astype(dtype), name=label)
        inherit_state(tensor, [source.const_value if source is not None else None])
        initializer = ir.Value(
            name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor
        )
        root.register_initializer(initializer)
        return initializer

    scaled = ir.Node("", "Mul", [x, constant(factor, f"{node.inputs[1].name}.scale", node.inputs[1])])  # type: ignore[union-attr]
    rest = constant(shift - mean * factor, f"{node.inputs[2].name}.shift", node.inputs[2])  # type: ignore[union-attr]
    shifted = ir.Node("", "Add", [scaled.outputs[0], rest])
    for new in (scaled, shifted):
        new.outputs[0].type, new.outputs[0].shape = node.outputs[0].type, x.shape
        new.metadata_props.update(node.metadata_props)
    scaled.name = scaled.outputs[0].name = f"{node.outputs[0].name}.scaled"
    shifted.name, shifted.outputs[0].name, node.outputs[0].name = node.name, node.outputs[0].name, None
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, [scaled, shifted])
    node.outputs[0].replace_all_uses_with(shifted.outputs[0])
    graph.remove(node, safe=True)
    for part in elementwise:
        part.outputs[0].shape = x.shape
    end = elementwise[-1].outputs[0] if elementwise else shifted.outputs[0]
    for transpose in after:
        name = transpose.outputs[0].name if transpose.outputs[0].is_graph_output() else None
        transpose.outputs[0].replace_all_uses_with(end, replace_graph_outputs=True)
        if name is not None:
            transpose.outputs[0].name, end.name = None, name
        graph.remove(transpose, safe=True)


def _elementwise_user(value: ir.Value) -> ir.Node | None:
    """The only user of a value, if it is elementwise."""
    uses = tuple(value.uses())
    node = uses[0].node if len(uses) == 1 and not value.is_graph_output() else None
    return node if node is not None and node.op_type in UNARY and not node.domain and len(node.inputs) == 1 else None


def _is_inverse(node: ir.Node, perm: tuple[int, ...]) -> bool:
    back = node.attributes.get("perm")
    return node.op_type == "Transpose" and back is not None and tuple(back.as_ints()) == inverse(perm)
