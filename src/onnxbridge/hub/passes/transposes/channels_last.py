"""Moves convolutions and pools of a model to channels-last, for targets whose kernels want the channels on the last axis.

The node stays the same operator in the domain `DOMAIN`: its data input and its output have the channels last, its weights and
attributes are those of ONNX. Transposes around it are moved and cancelled by the propagation of transposes, with rules for the
operators that have channels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.unique_name import unique_name
from onnxbridge.hub.passes.transposes.propagate_transposes import Perm, TransposePropagation, inverse, is_identity
from onnxbridge.hub.passes.transposes.transpose_rules import TRANSPOSE_RULES, RulePerms, TransposeRule, reduces

DOMAIN = "onnxbridge.channels_last"
"""Operators of this domain have the channels of data on the last axis."""
WINDOWED = frozenset({"Conv", "ConvTranspose", "MaxPool", "AveragePool", "DepthToSpace", "SpaceToDepth"})
"""Operators that are always moved."""
_WITH_CHANNELS = ("BatchNormalization", "InstanceNormalization", "GroupNormalization", "GlobalAveragePool", "GlobalMaxPool")
"""Operators that are moved where their input is transposed."""


def to_last(rank: int) -> Perm:
    """The permutation that moves the channels from axis 1 to the last."""
    return (0, *range(2, rank), 1)


def to_second(rank: int) -> Perm:
    """The permutation that moves the channels from the last axis to axis 1."""
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(model: ir.Model) -> None:
    """Move the model's operators to channels-last, in place. Types and shapes must have been inferred."""
    names = names_in(model)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [n for n in graph if n.op_type in WINDOWED and not n.domain]:
            _surround(graph, node, names)
    TransposePropagation(model, _RULES, lambda node: reduces(node) or node.op_type.startswith("Global")).run()


def _surround(graph: ir.Graph, node: ir.Node, names: set[str]) -> None:
    """Put a node between transposes; what it writes otherwise (indices) keeps it where it is."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None or not 3 <= len(x.shape) <= 5 or len([o for o in node.outputs if o.name]) != 1:
        return
    rank = len(x.shape)
    before = ir.Node("", "Transpose", [x], [ir.AttrInt64s("perm", list(to_last(rank)))])
    after = ir.Node("", "Transpose", [y], [ir.AttrInt64s("perm", list(to_second(rank)))])
    inside, outside = before.outputs[0], after.outputs[0]
    before.name = inside.name = unique_name(f"{x.name}.channels_last", names)
    inside.type, inside.shape = x.type, ir.Shape([x.shape[i] for i in to_last(rank)])
    outside.type, outside.shape = y.type, y.shape
    after.name = unique_name(f"{y.name}.transpose", names)
    y.replace_all_uses_with(outside, replace_graph_outputs=True)
    after.replace_input_with(0, y)
    outside.name, y.name = y.name, unique_name(f"{y.name}.channels_last", names)
    if y.shape is not None:
        y.shape = ir.Shape([y.shape[i] for i in to_last(rank)])
    node.replace_input_with(0, inside)
    node.domain = DOMAIN
    graph.insert_before(node, [before])
    graph.insert_after(node, [after])


def _with_channels(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    t = propagation.transposed_value(node.inputs[0])
    if t is None or t.perm != to_second(len(t.perm)) or len([o for o in node.outputs if o.name]) > 1:
        return TRANSPOSE_RULES[node.op_type](propagation, node)
    node.replace_input_with(0, t.source)
    node.domain = DOMAIN
    return [t.perm]


def _resize(propagation: TransposePropagation, node: ir.Node) -> RulePerms:
    """Sizes, scales and the region of interest are permuted as the axes are."""
    t = propagation.transposed_value(node.inputs[0])
    axes = node.attributes.get("axes")
    lists = [None if v is None else v.const_value for v in node.inputs[1:]]
    if t is None or any(v is not None and c is None for v, c in zip(node.inputs[1:], lists, strict=True)):
        return None
    if axes is not None:
        node.attributes["axes"] = ir.AttrInt64s("axes", [t.perm[a % len(t.perm)] for a in axes.as_ints()])
    else:
        order = list(inverse(t.perm))
        for i, tensor in enumerate(lists, start=1):
            if tensor is not None and tensor.size:
                permuted = np.asarray(tensor.numpy()).reshape(-1, len(order))[:, order].reshape(-1)
                node.replace_input_with(i, propagation.constant(permuted, f"{node.name}.{i}"))
    node.replace_input_with(0, t.source)
    return [t.perm]


_RULES: Mapping[str, TransposeRule] = {**TRANSPOSE_RULES, **dict.fromkeys(_WITH_CHANNELS, _with_channels), "Resize": _resize}


def set_layout(model: ir.Model, wanted: Mapping[str, str]) -> dict[str, Perm]:
    """Give inputs and outputs another layout, in place, and return the permutation from the source's layout to the new one.

    `wanted` has "nhwc" (of a value that has its channels on axis 1) or "nchw" (of one that has them last) by name.
    """
    names = names_in(model)
    found: dict[str, Perm] = {}
    for value in list(model.graph.inputs):
        if value.name is not None and value.name in wanted and value.shape is not None:
            found[value.name] = perm = _perm(wanted[value.name], len(value.shape))
            back = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", list(inverse(perm)))])
            source = back.outputs[0]
            back.name = source.name = unique_name(f"{value.name}.source", names)
            source.type, source.shape = value.type, value.shape
            value.replace_all_uses_with(source, replace_graph_outputs=True)
            back.replace_input_with(0, value)
            value.shape = ir.Shape([value.shape[i] for i in perm])
            model.graph.insert_before(model.graph[0], [back]) if len(model.graph) else model.graph.append(back)
    for i, value in enumerate(model.graph.outputs):
        if value.name is not None and value.name in wanted and value.shape is not None and value.name not in found:
            found[value.name] = perm = _perm(wanted[value.name], len(value.shape))
            node = ir.Node("", "Transpose", [value], [ir.AttrInt64s("perm", list(perm))])
            output = node.outputs[0]
            output.type, output.shape = value.type, ir.Shape([value.shape[i] for i in perm])
            output.name, value.name = value.name, unique_name(f"{value.name}.source", names)
            node.name = output.name
            model.graph.append(node)
            model.graph.outputs[i] = output
    return found


def _perm(layout: str, rank: int) -> Perm:
    return to_last(rank) if layout == "nhwc" else to_second(rank)


def transposed_borders(model: ir.Model) -> Iterable[str]:
    """The inputs and outputs with the channels on axis 1 that are only transposed to and from channels-last."""
    for value in model.graph.inputs:
        nodes = list(value.consumers())
        if nodes and all(_is(n, to_last) for n in nodes) and not value.is_graph_output():
            yield value.name or ""
    for value in model.graph.outputs:
        if (node := value.producer()) is not None and _is(node, to_second):
            yield value.name or ""


def used_channels_last(model: ir.Model) -> Iterable[str]:
    """The inputs and outputs that operators with channels-last data read or write as they are."""
    for value in model.graph.inputs:
        if value.shape is not None and any(n.domain == DOMAIN and n.inputs[0] is value for n in value.consumers()):
            yield value.name or ""
    for value in model.graph.outputs:
        if (node := value.producer()) is not None and node.domain == DOMAIN:
            yield value.name or ""


def _is(node: ir.Node, order: object) -> bool:
    perm = node.attributes.get("perm")
    if node.op_type != "Transpose" or node.domain or perm is None:
        return False
    found = tuple(perm.as_ints())
    return len(found) >= 3 and found == order(len(found)) and not is_identity(found)  # type: ignore[operator]
