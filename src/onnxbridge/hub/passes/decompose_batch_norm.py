"""Batch normalisations that stand between two transposes only for their own sake, as a product and a sum where they are."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.provenance import inherit_state
from onnxbridge.hub.passes.transposes.propagate_transposes import inverse
from onnxbridge.hub.passes.transposes.transpose_rules import UNARY


def spread_norms(model: ir.Model) -> None:
    """Write out, in place, every batch normalisation whose channels are brought to the second axis for it and back again.

    ONNX has the channels there and nowhere else; two transposes cost more than the operator saves.
    """
    names = {str(v.name) for g in (model.graph, *model.graph.subgraphs()) for v in g.initializers.values()}
    for node in list(model.graph.all_nodes()):
        if node.op_type == "BatchNormalization" and not node.domain and len(node.outputs) == 1:
            _spread(node, model.graph, names)


def _spread(node: ir.Node, root: ir.Graph, names: set[str]) -> None:
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    known = [static(v) for v in node.inputs[1:]]
    if before is None or before.op_type != "Transpose" or "perm" not in before.attributes or any(a is None for a in known):
        return
    perm = tuple(before.attributes["perm"].as_ints())
    output, x, chain = node.outputs[0], before.inputs[0], []
    while (next_ := _one_by_one(output)) is not None:
        chain.append(next_)
        output = next_.outputs[0]
    after = [use.node for use in output.uses()]
    several = len(after) > 1 and any(n.outputs[0].is_graph_output() for n in after)  # one value has one name
    if output.is_graph_output() or not after or several or x is None or any(not _turns_back(n, perm) for n in after):
        return
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    gain, shift, mean, variance = (np.asarray(a, np.float64) for a in known)
    factor = gain / np.sqrt(variance + epsilon)
    shape = [-1] + [1] * (len(perm) - 1 - perm[1])
    kind = node.inputs[1].dtype.numpy()  # type: ignore[union-attr]  # it has numbers

    def constant(array: np.ndarray, name: str, source: ir.Value | None) -> ir.Value:
        label = name if name not in names else f"{name}_{len(names)}"
        names.add(label)
        tensor = ir.tensor(array.reshape(shape).astype(kind), name=label)
        inherit_state(tensor, [source.const_value if source is not None else None])
        made = ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()), const_value=tensor)
        root.register_initializer(made)
        return made

    scaled = ir.Node("", "Mul", [x, constant(factor, f"{node.inputs[1].name}.factor", node.inputs[1])])  # type: ignore[union-attr]
    rest = constant(shift - mean * factor, f"{node.inputs[2].name}.rest", node.inputs[2])  # type: ignore[union-attr]
    moved = ir.Node("", "Add", [scaled.outputs[0], rest])
    for new in (scaled, moved):
        new.outputs[0].type, new.outputs[0].shape = node.outputs[0].type, x.shape
        new.metadata_props.update(node.metadata_props)
    scaled.name = scaled.outputs[0].name = f"{node.outputs[0].name}.scaled"
    moved.name, moved.outputs[0].name, node.outputs[0].name = node.name, node.outputs[0].name, None
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, [scaled, moved])
    node.outputs[0].replace_all_uses_with(moved.outputs[0])
    graph.remove(node, safe=True)
    for part in chain:
        part.outputs[0].shape = x.shape
    end = chain[-1].outputs[0] if chain else moved.outputs[0]
    for turn in after:
        name = turn.outputs[0].name if turn.outputs[0].is_graph_output() else None
        turn.outputs[0].replace_all_uses_with(end, replace_graph_outputs=True)
        if name is not None:
            turn.outputs[0].name, end.name = None, name
        graph.remove(turn, safe=True)


def _one_by_one(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value and computes each element of its own."""
    uses = tuple(value.uses())
    node = uses[0].node if len(uses) == 1 and not value.is_graph_output() else None
    return node if node is not None and node.op_type in UNARY and not node.domain and len(node.inputs) == 1 else None


def _turns_back(node: ir.Node, perm: tuple[int, ...]) -> bool:
    back = node.attributes.get("perm")
    return node.op_type == "Transpose" and back is not None and tuple(back.as_ints()) == inverse(perm)
