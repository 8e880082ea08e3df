"""Reads a hub graph as the calls that `lower` processes, for backends, the executor and the decompositions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.schemas import binding_of, name_of, plain
from onnxbridge.lowering import Body, Call, Ref


class HubValues(dict[Hashable, Any]):
    """A target's values by hub value. `constant` converts weights and other constants when they are first used."""

    def __init__(self, constant: Callable[[ir.Value], Any]) -> None:
        super().__init__()
        self._constant = constant

    def __missing__(self, key: Hashable) -> Any:
        if isinstance(key, ir.Value) and key.const_value is not None:
            converted = self[key] = self._constant(key)
            return converted
        raise KeyError(key)


def calls_of(graph: ir.Graph | Iterable[ir.Node]) -> Iterator[Call]:
    """A graph's nodes as calls: keys are `ir.Value`s, subgraphs are bodies."""
    for node in graph:
        yield call_of(node)


def call_of(node: ir.Node) -> Call:
    """A node as a call."""
    return Call(
        name_of(node.op_type, node.domain),
        tuple(None if v is None else Ref(v) for v in node.inputs),
        {a.name: _attribute(a) for a in node.attributes.values() if isinstance(a, ir.Attr)},
        tuple(o if o.name != "" and (o.uses() or o.is_graph_output()) else None for o in node.outputs),
        source_locations.read(node),
        binding_of(node.op_type, node.domain),
    )


def _attribute(attr: ir.Attr) -> Any:
    return body(attr.as_graph()) if attr.type == ir.AttributeType.GRAPH else plain(attr)


def body(graph: ir.Graph) -> Body:
    """A subgraph as a body."""
    return Body(tuple(graph.inputs), list(calls_of(graph)), tuple(Ref(v) for v in graph.outputs))
