"""The functions of a SavedModel that initialize lookup tables from its own asset files: these files only may be read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

OPERATORS = frozenset({"InitializeTableFromTextFileV2"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


class AssetTables:
    """Decides which of these operators a MetaGraphDef may contain: those in functions that get the file name as a captured asset.

    That holds for a SavedModel with objects, whose main graph is not run when it is loaded.
    """

    def __init__(self, meta: Any) -> None:
        self._objects = meta.object_graph_def
        self._functions = {f.signature.name: f for f in meta.graph_def.library.function}
        self._has_own_names = all(_is_own(a.filename) for a in meta.asset_file_def)

    def allows(self, node: Any, function: str) -> bool:
        """Whether a node of a function reads asset files only."""
        if node.op not in OPERATORS or not self._has_own_names or not len(self._objects.nodes):
            return False
        return self._is_asset(node.input[1], function, 0)

    def _is_asset(self, tensor: str, function: str, depth: int) -> bool:
        """Whether a tensor of a function is an argument that is an asset whenever the function is called."""
        body = self._functions[function]
        if "api_implements" in body.attr or depth > len(self._functions):
            return False  # with that attribute TensorFlow may substitute the function for another one
        inner = {n.name: n for n in body.node_def}
        name = tensor.split(":")[0]
        while name in inner and inner[name].op == "Identity":
            name = inner[name].input[0].split(":")[0]
        arguments = [a.name for a in body.signature.input_arg]
        if name not in arguments:
            return False
        index = arguments.index(name)
        captured, calls = self._captured(function, index, len(arguments)), list(self._calls(function))
        if captured is None and not calls or captured is False:
            return False
        return all(
            node.op in _CALLS and self._is_asset(node.input[index], caller, depth + 1) for node, caller in calls
        )

    def _captured(self, function: str, index: int, count: int) -> bool | None:
        """Whether the objects bind an argument to an asset; None for a function that they do not have."""
        if function not in self._objects.concrete_functions:
            return None
        bound = self._objects.concrete_functions[function].bound_inputs
        position = index - (count - len(bound))
        if position < 0 or not 0 <= bound[position] < len(self._objects.nodes):
            return False
        return bool(self._objects.nodes[bound[position]].WhichOneof("kind") == "asset")

    def _calls(self, function: str) -> Iterator[tuple[Any, str]]:
        """The nodes of other functions that refer to the function."""
        for caller, body in self._functions.items():
            for node in body.node_def:
                named = [v.func.name for v in node.attr.values() if v.HasField("func")]
                named += [f.name for v in node.attr.values() for f in v.list.func]
                if function in (node.op, *named):
                    yield node, caller


def _is_own(name: str) -> bool:
    """Whether a file name stays in the folder of the assets."""
    return not posixpath.isabs(name) and "\\" not in name and ".." not in name.split("/") and ":" not in name
