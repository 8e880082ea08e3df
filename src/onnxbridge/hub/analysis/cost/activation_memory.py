"""Memory of a model's activations, from the shapes of its values in topological order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnxbridge.hub.analysis.cost.macs import shape_of
from onnxbridge.hub.analysis.graph_diff.settings import constant_of
from onnxbridge.hub.ir.graphs import bodies_of


@dataclass(frozen=True)
class ActivationMemory:
    """Bytes of inputs and results of nodes, without weights.

    `peak` is the most that is needed at once if the nodes run in topological order, each result is freed after its last use, and
    none shares memory with another. `total` is the sum. `unknown` is the number of values whose size is unknown; they count as
    nothing.
    """

    peak: int
    total: int
    unknown: int


def activation_memory(graph: ir.Graph) -> ActivationMemory:
    """The memory of the activations of a graph and its subgraphs; a body that runs several times is counted once."""
    sizes: dict[ir.Value, int | None] = {v: _bytes(v) for v in graph.inputs}
    last = _last_uses(graph)
    live = sum(_known(sizes.values()))
    peak, total, unknown = live, 0, 0
    for i, node in enumerate(graph):
        made = [v for v in node.outputs if v.name != "" and constant_of(v) is None]
        sizes.update((v, _bytes(v)) for v in made)
        inside = [activation_memory(body) for body in bodies_of(node)]
        new = sum(_known(sizes[v] for v in made))
        peak = max(peak, live + new + max((m.peak for m in inside), default=0))
        total += sum(m.total for m in inside)
        unknown += sum(m.unknown for m in inside)
        live += new - sum(_known(sizes.get(v) for v in last.get(i, ())))
        live -= sum(_known(sizes[v] for v in made if not v.uses() and not v.is_graph_output()))
    known = list(_known(sizes.values()))
    return ActivationMemory(peak, total + sum(known), unknown + len(sizes) - len(known))


def _known(sizes: object) -> Iterator[int]:
    for size in sizes:  # type: ignore[attr-defined]
        if size is not None:
            yield size


def _bytes(value: ir.Value) -> int | None:
    shape = shape_of(value)
    if shape is None or value.dtype is None or not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.STRING:
        return None
    bits = value.dtype.bitwidth
    for d in shape:
        bits *= d
    return (bits + 7) // 8


def _last_uses(graph: ir.Graph) -> dict[int, list[ir.Value]]:
    """The values of this graph that no node after the one of each index reads; a node reads what its subgraphs read."""
    last: dict[ir.Value, int] = {}
    for i, node in enumerate(graph):
        for value in _read_by(node):
            last[value] = i
    kept = set(graph.outputs)
    found: dict[int, list[ir.Value]] = {}
    for value, i in last.items():
        if value not in kept:
            found.setdefault(i, []).append(value)
    return found


def _read_by(node: ir.Node) -> Iterator[ir.Value]:
    yield from (v for v in node.inputs if v is not None)
    for body in bodies_of(node):
        yield from body.outputs
        for inner in body:
            yield from _read_by(inner)
