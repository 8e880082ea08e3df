"""Conversion of TorchScript from training to evaluation mode."""

from __future__ import annotations

import io
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.capture.training_mode import FLAGS, NORM, training_kinds
from onnxbridge.frontends.pytorch.torchscript.graph_nodes import every_node


def scripts_in_training(script: Any) -> list[str]:
    """The classes of a script's modules in training mode whose code reads `training`."""
    found: dict[str, None] = {}
    for m in script.modules():
        nodes = [n for name in m._c._method_names() for n in every_node(m._c._get_method(name).graph)]
        reads_training = any(n.kind() == "prim::GetAttr" and n.s("name") == "training" for n in nodes)
        if reads_training and getattr(m, "training", False) and getattr(m, "p", None) != 0:
            found[m.original_name] = None
    return list(found)


def script_for_inference(script: Any) -> tuple[Any, list[str]]:
    """A script that was traced in training mode, converted to evaluation mode, and the operators that were in training mode.

    Scripted code reads the modules' `training`; traced code has constants instead. The argument is not modified.
    """
    kinds = training_kinds((FLAGS[n.kind()][2], on) for _, n, _, on in _constant_training_flags(script))
    if not kinds:
        return script, []
    torch = frameworks.torch()
    stored = io.BytesIO()
    torch.jit.save(script, stored)  # a deep copy would share the graphs
    stored.seek(0)
    converted = torch.jit.load(stored, map_location="cpu")
    names = set()
    for graph, node, at, on in _constant_training_flags(converted):
        _, off, kind = FLAGS[node.kind()]
        if on and kind in kinds:
            graph.setInsertPoint(node)
            node.replaceInput(at, graph.insertConstant(off))
            names.add(node.kind())
    for _, node in _script_nodes(converted) if NORM in kinds else ():
        counter = node.inputsAt(0).node() if node.kind() == "aten::add_" and not node.hasUses() else None
        if counter is not None and counter.kind() == "prim::GetAttr" and counter.s("name") == "num_batches_tracked":
            node.destroy()
    return converted, sorted(names)


def _script_nodes(script: Any) -> list[tuple[Any, Any]]:
    """The nodes of all methods, each with its graph."""
    graphs = [m._c._get_method(name).graph for m in script.modules() for name in m._c._method_names()]
    return [(graph, node) for graph in graphs for node in every_node(graph)]


def _constant_training_flags(script: Any) -> list[tuple[Any, Any, int, bool]]:
    """Operators with a constant training flag: graph, node, the index of the flag, and whether it is on."""
    torch = frameworks.torch()
    found = []
    for graph, node in _script_nodes(script):
        if node.kind() not in FLAGS or node.schema() == "(no schema)":
            continue
        flag, _, kind = FLAGS[node.kind()]
        names = [a.name for a in torch._C.parse_schema(node.schema()).arguments]
        value = node.inputsAt(names.index(flag))
        inputs = dict(zip(names, node.inputs(), strict=True))
        if value.node().kind() != "prim::Constant" or (flag == "dropout_p" and not value.toIValue()):
            continue
        if kind == NORM and inputs["running_mean"].node().mustBeNone():
            continue
        found.append((graph, node, names.index(flag), bool(value.toIValue())))
    return found
