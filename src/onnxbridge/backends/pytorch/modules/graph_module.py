"""The module that the backend builds: an `fx.GraphModule` that supports copying and pickling.

fx.GraphModule loses a module's own attributes and which buffers are non-persistent, and it pickles code that it traces again when
loaded, which fails for functions that read tensors.
"""

from __future__ import annotations

import builtins
import copy
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
from torch import fx, nn
from torch.fx.node import _get_qualified_name, map_aggregate

_DERIVED = ("_graph", "_code", "_lineno_map", "_prologue_start")
"""Attributes that are derived from the graph."""


class Network(fx.GraphModule):  # type: ignore[misc]
    """A network, or a subgraph inside one.

    Attributes:
        input_names, output_names: the hub's names.
        input_types: the hub's element type and dimensions of each input.
        output_types: the hub's element types.
        notes: differences from the source.
    """

    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    input_types: tuple[tuple[ir.DataType | None, tuple[int | str | None, ...] | None], ...] = ()
    output_types: tuple[ir.DataType | None, ...] = ()
    notes: tuple[str, ...] = ()

    def __copy__(self) -> Network:
        return _new_network(type(self).__name__, self._state(), copy.deepcopy(self.graph))

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        made = _new_network(type(self).__name__, {}, fx.Graph())
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self._state(), memo))
        made.graph = copy.deepcopy(self.graph)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _deserialize, (type(self).__name__, self._state(), _serialized(self.graph))

    def _state(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _DERIVED}


def _new_network(name: str, state: Mapping[str, Any], graph: fx.Graph) -> Network:
    made = Network(nn.Module(), fx.Graph(), name)
    made.__dict__.update(state)
    made.graph = graph
    return made


@dataclass(frozen=True)
class _Result:
    """A reference to the result of another node in a pickled graph, by index."""

    index: int


def _serialized(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """A graph's nodes without references to each other; functions are stored by qualified name."""
    references = {node: _Result(i) for i, node in enumerate(graph.nodes)}
    made = []
    for node in graph.nodes:
        target = _get_qualified_name(node.target) if node.op == "call_function" else node.target
        arguments = map_aggregate((node.args, node.kwargs), lambda a: references[a] if isinstance(a, fx.Node) else a)
        made.append((node.op, node.name, target, arguments, node.meta.get("where")))
    return made


def _deserialize(name: str, state: Mapping[str, Any], nodes_data: Sequence[tuple[Any, ...]]) -> Network:
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for op, node_name, target, arguments, where in nodes_data:
        if op == "call_function":
            target = pkgutil.resolve_name(target) if "." in target else getattr(builtins, target)
        args, kwargs = map_aggregate(arguments, lambda a: nodes[a.index] if isinstance(a, _Result) else a)
        nodes.append(graph.create_node(op, target, args, kwargs, node_name))
        if where is not None:
            nodes[-1].meta["where"] = where
    return _new_network(name, state, graph)
