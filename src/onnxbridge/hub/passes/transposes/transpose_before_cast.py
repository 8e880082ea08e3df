"""Moves transposes of dequantized and cast values before that, where those of weights are folded."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.unique_name import unique_name


def transpose_before_cast(model: ir.Model, names: set[str]) -> None:
    """Rewrite, in place, every `Transpose(DequantizeLinear(x))` whose dequantized value has no other use, or whose `x` is a
    constant, as `DequantizeLinear(Transpose(x))`, and so with a Cast of a constant. `names` are those in use."""
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Transpose" and not node.domain and "perm" in node.attributes:
            _move(node, model.graph, names)


def _move(node: ir.Node, root: ir.Graph, names: set[str]) -> None:
    value = node.inputs[0]
    cast = value.producer() if value is not None else None
    if value is None or cast is None or cast.domain or cast.op_type not in ("Cast", "DequantizeLinear"):
        return
    x = cast.inputs[0]
    if x is None or node.graph is None or cast.graph is not node.graph:
        return
    only_use = len(value.uses()) == 1 and not value.is_graph_output() and cast.op_type == "DequantizeLinear"
    perm = list(node.attributes["perm"].as_ints())
    attributes = _transposed_attributes(cast, perm)
    if attributes is None or not (only_use or x.const_value is not None):
        return
    moved = _transposed(node, x, perm, root, names)
    made = ir.Node("", cast.op_type, [moved, *cast.inputs[1:]], attributes)
    made.metadata_props.update(node.metadata_props)
    out, old = made.outputs[0], node.outputs[0]
    out.type, out.shape, out.name = old.type, old.shape, old.name
    made.name = node.name
    node.graph.insert_before(node, [made])
    old.replace_all_uses_with(out, replace_graph_outputs=True)
    node.graph.remove(node, safe=True)


def _transposed_attributes(cast: ir.Node, perm: list[int]) -> list[ir.Attr] | None:
    """The attributes of a DequantizeLinear or Cast of a transposed tensor; None if its scales cannot be transposed."""
    attributes = dict(cast.attributes)
    if cast.op_type == "Cast":
        return list(attributes.values())
    scale = cast.inputs[1]
    blocked = "block_size" in attributes and attributes["block_size"].as_int()
    if scale is None or scale.shape is None or len(scale.shape) > 1 or blocked:
        return None
    if len(scale.shape) == 1:
        axis = attributes["axis"].as_int() if "axis" in attributes else 1
        attributes["axis"] = ir.AttrInt64("axis", perm.index(axis % len(perm)))
    return list(attributes.values())


def _transposed(node: ir.Node, x: ir.Value, perm: list[int], root: ir.Graph, names: set[str]) -> ir.Value:
    """The stored numbers transposed: a constant as a constant, under the name of its weight."""
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
