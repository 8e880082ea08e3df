"""Where the source had what was recorded, as the path of a module."""

from __future__ import annotations

import re
from dataclasses import replace

from torch import fx, nn

from onnxbridge.backends.pytorch.weights import identifiers

_NOWHERE = "_empty_nn_module_stack"
"""What torch.onnx says of nodes that its own passes made."""
_METHOD = re.compile(r"[A-Za-z_]\w*\.forward")
"""The class of the whole, with its method."""


def place(node: fx.Node) -> str:
    """The path of the operator's module in the source, or what the operator's own name tells of one."""
    found = node.meta.get("place")
    if found is not None:
        return str(found)
    where = node.meta.get("where")
    if where is None:
        return ""
    name = where.scope or (where.node.strip("/").rpartition("/")[0].replace("/", ".") if "/" in where.node else "")
    return ".".join(identifiers(name)) if name else ""


def settle(graph: fx.Graph, root: nn.Module, whole: str = "", told: bool = False) -> None:
    """Find the modules that the places of the nodes mean, before any of them has become a layer.

    What is said to be in a method of the class that is called `whole` is in no module. `told` says that nodes are named by their
    modules. Exporters that do so repeat in each name what a list is called: "layer1/layer1.0/conv".
    """
    known: dict[str, str] = {}
    for node in graph.nodes:
        where = node.meta.get("where")
        if where is None:
            continue
        name = where.scope or where.node
        outside = _METHOD.fullmatch(where.scope) or bool(whole) and where.scope.rpartition(".")[0] == whole
        if name not in known:
            known[name] = "" if outside else _settled(where.scope, where.node, root, place(node))
        node.meta.update(place=known[name], outside=bool(outside), told=told or bool(where.scope))
        if not where.scope and known[name] and (told or _within(root, known[name].split(".")[:-1]) not in (None, root)):
            node.meta["where"] = replace(where, scope=known[name])


def _settled(scope: str, name: str, root: nn.Module, plain: str) -> str:
    if scope.startswith(_NOWHERE):
        return ""
    if scope:
        return re.sub(r"@\d+", "", plain) if "@" in scope else plain
    parts = name.strip("/").split("/")[:-1]
    if not any(after.startswith(f"{before}.") for before, after in zip(parts, parts[1:], strict=False)):
        return plain
    path: list[str] = []
    module: nn.Module | None = root
    for before, part in zip(["", *parts], parts, strict=False):
        told = identifiers(part)
        rest = identifiers(part[len(before) + 1 :]) if before and part.startswith(f"{before}.") else told
        taken = told if _within(module, told) is not None and _within(module, rest) is None else rest
        path += taken
        module = _within(module, taken)
    return ".".join(path)


def _within(module: nn.Module | None, path: list[str]) -> nn.Module | None:
    for part in path:
        module = module._modules.get(part) if module is not None else None
    return module
