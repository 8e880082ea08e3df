"""The module that the backend gives: an `fx.GraphModule` that is copied and pickled as other modules are.

fx keeps neither what a module says of itself nor which buffers are in no `state_dict`, and it pickles code that it traces when it
is read, which functions that look at numbers do not stand.
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

_BY_GRAPH = ("_graph", "_code", "_lineno_map", "_prologue_start")
"""What a module holds that follows from its graph."""


class Network(fx.GraphModule):  # type: ignore[misc]
    """A network, or a body inside one.

    Attributes:
        input_names, output_names: the hub's names.
        input_types: the hub's element type and dimensions of each input.
        output_types: the hub's element types.
        notes: what is not as in the source.
    """

    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    input_types: tuple[tuple[ir.DataType | None, tuple[int | str | None, ...] | None], ...] = ()
    output_types: tuple[ir.DataType | None, ...] = ()
    notes: tuple[str, ...] = ()

    def __copy__(self) -> Network:
        return _made(type(self).__name__, self._held(), copy.deepcopy(self.graph))

    def __deepcopy__(self, memo: dict[int, Any]) -> Network:
        made = _made(type(self).__name__, {}, fx.Graph())
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self._held(), memo))
        made.graph = copy.deepcopy(self.graph)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _read, (type(self).__name__, self._held(), _steps(self.graph))

    def _held(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _BY_GRAPH}


def _made(name: str, held: Mapping[str, Any], graph: fx.Graph) -> Network:
    made = Network(nn.Module(), fx.Graph(), name)
    made.__dict__.update(held)
    made.graph = graph
    return made


@dataclass(frozen=True)
class _Result:
    """What a call in a pickled graph takes of another one, by its place."""

    place: int


def _steps(graph: fx.Graph) -> list[tuple[Any, ...]]:
    """A graph's nodes without references to each other; functions go by their names, which some do not know themselves."""
    places = {node: _Result(i) for i, node in enumerate(graph.nodes)}
    made = []
    for node in graph.nodes:
        target = _get_qualified_name(node.target) if node.op == "call_function" else node.target
        given = map_aggregate((node.args, node.kwargs), lambda a: places[a] if isinstance(a, fx.Node) else a)
        made.append((node.op, node.name, target, given, node.meta.get("where")))
    return made


def _read(name: str, held: Mapping[str, Any], steps: Sequence[tuple[Any, ...]]) -> Network:
    graph = fx.Graph()
    nodes: list[fx.Node] = []
    for op, called, target, given, where in steps:
        if op == "call_function":
            target = pkgutil.resolve_name(target) if "." in target else getattr(builtins, target)
        args, kwargs = map_aggregate(given, lambda a: nodes[a.place] if isinstance(a, _Result) else a)
        nodes.append(graph.create_node(op, target, args, kwargs, called))
        if where is not None:
            nodes[-1].meta["where"] = where
    return _made(name, held, graph)
