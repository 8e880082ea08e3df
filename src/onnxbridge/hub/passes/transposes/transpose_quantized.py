"""Moves transposes of dequantized values before DequantizeLinear, where integers are transposed: those of weights are folded."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.unique_name import unique_name


def transpose_quantized(model: ir.Model, names: set[str]) -> None:
    """Rewrite every `Transpose(DequantizeLinear(x))` whose dequantized value has no other use, or whose `x` is a constant, as
    `DequantizeLinear(Transpose(x))`, in place. `names` are those in use."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Transpose" and not node.domain and "perm" in node.attributes:
            _move(node, model.graph, names)


def _move(node: ir.Node, root: ir.Graph, names: set[str]) -> None:
    value = node.inputs[0]
    dequantize = value.producer() if value is not None else None
    if value is None or dequantize is None or dequantize.op_type != "DequantizeLinear" or dequantize.domain or node.graph is None:
        return
    x, scale = dequantize.inputs[0], dequantize.inputs[1]
    only_use = len(value.uses()) == 1 and not value.is_graph_output()
    blocked = "block_size" in dequantize.attributes and dequantize.attributes["block_size"].as_int()
    if x is None or scale is None or scale.shape is None or len(scale.shape) > 1 or blocked:
        return
    if dequantize.graph is not node.graph or not (only_use or x.const_value is not None):
        return
    perm = list(node.attributes["perm"].as_ints())
    attributes = dict(dequantize.attributes)
    if len(scale.shape) == 1:
        axis = attributes["axis"].as_int() if "axis" in attributes else 1
        attributes["axis"] = ir.AttrInt64("axis", perm.index(axis % len(perm)))
    moved = _transposed(node, x, perm, root, names)
    made = ir.Node("", "DequantizeLinear", [moved, *dequantize.inputs[1:]], list(attributes.values()))
    made.metadata_props.update(node.metadata_props)
    out, old = made.outputs[0], node.outputs[0]
    out.type, out.shape, out.name = old.type, old.shape, old.name
    made.name = node.name
    node.graph.insert_before(node, [made])
    old.replace_all_uses_with(out, replace_graph_outputs=True)
    node.graph.remove(node, safe=True)


def _transposed(node: ir.Node, x: ir.Value, perm: list[int], root: ir.Graph, names: set[str]) -> ir.Value:
    """The integers transposed: a constant as a constant, under the name of its weight."""
    shape = None if x.shape is None else ir.Shape([x.shape[p] for p in perm])
    name = unique_name(f"{x.name}.transpose", names)
    if x.const_value is None:
        made = ir.Node("", "Transpose", [x], [ir.AttrInt64s("perm", perm)], name=name)
        made.metadata_props.update(node.metadata_props)
        out = made.outputs[0]
        out.name, out.type, out.shape = name, x.type, shape
        assert node.graph is not None
        node.graph.insert_before(node, [made])
        return out
    tensor = ir.Tensor(x.const_value.numpy().transpose(perm), x.const_value.dtype, name=name)
    provenance.inherit_state(tensor, [x.const_value])
    created = ir.Value(name=name, type=x.type, shape=shape, const_value=tensor)
    root.register_initializer(created)
    return created
