"""TorchScript in training mode, converted as for inference."""

from __future__ import annotations

import io
from typing import Any

from onnxbridge import frameworks
from onnxbridge.frontends.pytorch.capture.training_mode import FLAGS, NORM, training_kinds
from onnxbridge.frontends.pytorch.torchscript.graph_nodes import every_node


def scripts_in_training(script: Any) -> list[str]:
    """The classes of a script's modules that ask whether they train, of those that are in training mode."""
    found: dict[str, None] = {}
    for m in script.modules():
        nodes = [n for name in m._c._method_names() for n in every_node(m._c._get_method(name).graph)]
        asks = any(n.kind() == "prim::GetAttr" and n.s("name") == "training" for n in nodes)
        if asks and getattr(m, "training", False) and getattr(m, "p", None) != 0:
            found[m.original_name] = None
    return list(found)


def script_for_inference(script: Any) -> tuple[Any, list[str]]:
    """TorchScript that was recorded in training mode as it is in evaluation mode, and the operators that trained.

    A script asks its modules; a recording has constants in place of their answers. The one given is left as it is.
    """
    kinds = training_kinds((FLAGS[n.kind()][2], on) for _, n, _, on in _recorded(script))
    if not kinds:
        return script, []
    torch = frameworks.torch()
    stored = io.BytesIO()
    torch.jit.save(script, stored)  # a deep copy shares its code
    stored.seek(0)
    made = torch.jit.load(stored, map_location="cpu")
    names = set()
    for graph, node, at, on in _recorded(made):
        _, off, kind = FLAGS[node.kind()]
        if on and kind in kinds:
            graph.setInsertPoint(node)
            node.replaceInput(at, graph.insertConstant(off))
            names.add(node.kind())
    for _, node in _script_nodes(made) if NORM in kinds else ():
        counted = node.inputsAt(0).node() if node.kind() == "aten::add_" and not node.hasUses() else None
        if counted is not None and counted.kind() == "prim::GetAttr" and counted.s("name") == "num_batches_tracked":
            node.destroy()
    return made, sorted(names)


def _script_nodes(script: Any) -> list[tuple[Any, Any]]:
    """The nodes of all methods, each with its graph."""
    graphs = [m._c._get_method(name).graph for m in script.modules() for name in m._c._method_names()]
    return [(graph, node) for graph in graphs for node in every_node(graph)]


def _recorded(script: Any) -> list[tuple[Any, Any, int, bool]]:
    """The operators that a recording says train or do not: graph, node, the position of the flag, and whether it is on."""
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
