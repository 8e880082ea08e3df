"""The path of the source module that each traced node belongs to."""

from __future__ import annotations

import re
from dataclasses import replace

from torch import fx, nn

from onnxbridge.backends.pytorch.weights import identifiers

_EMPTY_SCOPE = "_empty_nn_module_stack"
"""Scope that torch.onnx writes for nodes made by its own passes."""
_METHOD = re.compile(r"[A-Za-z_]\w*\.forward")
"""A scope that is the root class with its method."""


def module_path(node: fx.Node) -> str:
    """The path of the operator's module in the source, from its location or else from its own name."""
    found = node.meta.get("module_path")
    if found is not None:
        return str(found)
    where = node.meta.get("where")
    if where is None:
        return ""
    name = where.scope or (where.node.strip("/").rpartition("/")[0].replace("/", ".") if "/" in where.node else "")
    return ".".join(identifiers(name)) if name else ""


def resolve_paths(graph: fx.Graph, root: nn.Module, root_class: str = "", named_by_module: bool = False) -> None:
    """Resolve the module path of each node, before any module is replaced by a layer.

    Scopes that are methods of the root class `root_class` belong to no submodule. `named_by_module` says that nodes are named by
    their modules. Such exporters repeat the name of a list in the names of its elements: "layer1/layer1.0/conv".
    """
    known: dict[str, str] = {}
    for node in graph.nodes:
        where = node.meta.get("where")
        if where is None:
            continue
        name = where.scope or where.node
        outside = _METHOD.fullmatch(where.scope) or bool(root_class) and where.scope.rpartition(".")[0] == root_class
        if name not in known:
            known[name] = "" if outside else _resolved(where.scope, where.node, root, module_path(node))
        node.meta.update(module_path=known[name], outside=bool(outside), named_by_module=named_by_module or bool(where.scope))
        if (
            not where.scope
            and known[name]
            and (named_by_module or _within(root, known[name].split(".")[:-1]) not in (None, root))
        ):
            node.meta["where"] = replace(where, scope=known[name])


def _resolved(scope: str, name: str, root: nn.Module, default: str) -> str:
    if scope.startswith(_EMPTY_SCOPE):
        return ""
    if scope:
        return re.sub(r"@\d+", "", default) if "@" in scope else default
    parts = name.strip("/").split("/")[:-1]
    if not any(after.startswith(f"{before}.") for before, after in zip(parts, parts[1:], strict=False)):
        return default
    path: list[str] = []
    module: nn.Module | None = root
    for before, part in zip(["", *parts], parts, strict=False):
        full = identifiers(part)
        rest = identifiers(part[len(before) + 1 :]) if before and part.startswith(f"{before}.") else full
        chosen = full if _within(module, full) is not None and _within(module, rest) is None else rest
        path += chosen
        module = _within(module, chosen)
    return ".".join(path)


def _within(module: nn.Module | None, path: list[str]) -> nn.Module | None:
    for part in path:
        module = module._modules.get(part) if module is not None else None
    return module
