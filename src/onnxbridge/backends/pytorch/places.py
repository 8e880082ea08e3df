"""Where the source had what was recorded, as the path of a module."""

from __future__ import annotations

import re

from torch import fx, nn

from onnxbridge.backends.pytorch.weights import identifiers

_NOWHERE = re.compile(r"_empty_nn_module_stack\w*|[A-Za-z_]\w*\.forward")
"""What stands for no module: torch.onnx's mark, and the class of the whole with its method."""


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


def settle(graph: fx.Graph, root: nn.Module, whole: str = "") -> None:
    """Find the modules that the places of the nodes mean, before any of them has become a layer.

    What is said to be in a method of the class that is called `whole` is in no module. Exporters that name nodes by their modules
    repeat in each name what a list is called: "layer1/layer1.0/conv".
    """
    known: dict[str, str] = {}
    for node in graph.nodes:
        where = node.meta.get("where")
        if where is None:
            continue
        name = where.scope or where.node
        if name not in known:
            outside = bool(whole) and where.scope.rpartition(".")[0] == whole
            known[name] = "" if outside else _settled(where.scope, where.node, root, place(node))
        node.meta["place"] = known[name]


def _settled(scope: str, name: str, root: nn.Module, plain: str) -> str:
    if _NOWHERE.fullmatch(scope):
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
