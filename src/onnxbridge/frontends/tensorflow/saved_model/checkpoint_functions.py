"""The functions of a SavedModel that write and read its checkpoint: only those that its loader runs, on the file name that it
passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

OPERATORS = frozenset({"SaveV2", "MergeV2Checkpoints", "RestoreV2"})
_INITIALIZERS = ("saved_model_main_op", "legacy_init_op", "saved_model_assets_init_op")


@dataclass
class Reached:
    """Names of the main graph's nodes and of the functions that are reachable."""

    nodes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


class Saver:
    """Decides which checkpoint operators a MetaGraphDef may contain.

    Allowed are those reachable from saving only (which is not run), and those that read the loader's file during restoring; never
    those reachable from a signature, an initializer or a function of the objects.
    """

    def __init__(self, meta: Any) -> None:
        self._nodes = {n.name: n for n in meta.graph_def.node}
        self._functions = {f.signature.name: f for f in meta.graph_def.library.function}
        definition = meta.saver_def
        self._filename = _node(definition.filename_tensor_name)
        self._saving = self._reached([definition.save_tensor_name])
        self._restoring = self._reached([definition.restore_op_name])
        infos = [info for s in meta.signature_def.values() for info in s.outputs.values()]
        entry_points = [name for info in infos for name in _names(info)]
        for key in _INITIALIZERS:
            if key in meta.collection_def:
                named = meta.collection_def[key]
                entry_points += [*named.node_list.value, *(b.decode(errors="replace") for b in named.bytes_list.value)]
        gradients = [g.gradient_func for g in meta.graph_def.library.gradient]
        self._used = self._reached(entry_points, [*meta.object_graph_def.concrete_functions, *gradients])

    def allows(self, node: Any, function: str = "") -> bool:
        """Whether the node, in the main graph or in a function, belongs to the saver or is never run."""
        if node.op not in OPERATORS:
            return False
        if not function:
            if node.name in self._used.nodes:
                return False
            return node.name not in self._restoring.nodes or self._reads_own(node, "")
        if function in self._used.functions or "api_implements" in self._functions[function].attr:
            return False  # with that attribute TensorFlow may substitute the function for another one
        if function in self._restoring.functions:
            return self._reads_own(node, function)
        return function in self._saving.functions

    def _reached(self, tensors: Iterable[str], functions: Iterable[str] = ()) -> Reached:
        found = Reached()
        nodes, pending = [_node(t) for t in tensors], list(functions)
        while nodes:
            node = self._nodes.get(nodes.pop())
            if node is not None and node.name not in found.nodes:
                found.nodes.add(node.name)
                nodes += map(_node, node.input)
                pending += self._called(node)
        while pending:
            name = pending.pop()
            if name in self._functions and name not in found.functions:
                found.functions.add(name)
                pending += [called for node in self._functions[name].node_def for called in self._called(node)]
        return found

    def _reads_own(self, node: Any, function: str) -> bool:
        return node.op == "RestoreV2" and self._is_filename(node.input[0], function, 0)

    def _is_filename(self, tensor: str, function: str, depth: int) -> bool:
        """Whether a tensor is the checkpoint name passed by the loader; in a function, an argument that always is."""
        name = _node(tensor)
        if not function:
            while name in self._nodes and self._nodes[name].op == "Identity":
                name = _node(self._nodes[name].input[0])
            return name == self._filename
        body = self._functions[function]
        inner = {n.name: n for n in body.node_def}
        while name in inner and inner[name].op == "Identity":
            name = _node(inner[name].input[0])
        arguments = [a.name for a in body.signature.input_arg]
        if name not in arguments or depth > len(self._functions):
            return False
        index = arguments.index(name)
        calls = list(self._calls(function))
        return bool(calls) and all(
            node.op in ("PartitionedCall", "StatefulPartitionedCall") and self._is_filename(node.input[index], caller, depth + 1)
            for node, caller in calls
        )

    def _calls(self, function: str) -> Iterator[tuple[Any, str]]:
        """The nodes that call a function during restoring, each with its function."""
        for name in self._restoring.nodes:
            if function in self._called(self._nodes[name]):
                yield self._nodes[name], ""
        for caller in self._restoring.functions:
            for node in self._functions[caller].node_def:
                if function in self._called(node):
                    yield node, caller

    def _called(self, node: Any) -> list[str]:
        """The functions that a node calls: those in its attributes, and the one named as its operator."""
        found = [node.op] if node.op in self._functions else []
        for value in node.attr.values():
            found += [value.func.name] if value.HasField("func") else [f.name for f in value.list.func]
        return found


def _node(tensor: str) -> str:
    """The node or function argument that a tensor or control input names."""
    return tensor.lstrip("^").split(":")[0]


def _names(info: Any) -> list[str]:
    """The tensors of a signature's output, which may be sparse or composite."""
    sparse = info.coo_sparse
    names = [info.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    return [n for n in names if n] + [n for part in info.composite_tensor.components for n in _names(part)]
