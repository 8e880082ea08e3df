"""The faults that can be planted in a graph."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.runtime.mutation.attributes import faults_of_attributes
from onnxbridge.runtime.mutation.fault import Fault
from onnxbridge.runtime.mutation.swaps import swapped_inputs
from onnxbridge.runtime.mutation.weights import faults_of_weights

KINDS = ("weight scaled", "weight zeroed", "channel zeroed", "axis", "pads", "epsilon", "mode", "inputs swapped")
_OF_SHAPES = frozenset({"Shape", "Size"})


def faults_of(graph: ir.Graph) -> list[Fault]:
    """Every fault that can be planted in a graph, in the order of its nodes. No weight is read.

    Nodes in the bodies of If, Loop and Scan have none, and neither have nodes whose values no output depends on.
    """
    found = []
    live = _live(graph)
    for node in graph:
        if node not in live or not node.outputs or not node.outputs[0].name:
            continue
        value = node.outputs[0].name
        location = source_locations.read(node)
        for kind, text, change in (*faults_of_weights(node), *faults_of_attributes(node), *swapped_inputs(node)):
            found.append(Fault(kind, node.name or value, value, node.op_type, text, location, change))
    return found


def _live(graph: ir.Graph) -> set[ir.Node]:
    """The nodes on whose values, not only their shapes, an output depends."""
    todo = [v.producer() for v in graph.outputs]
    found: set[ir.Node] = set()
    while todo:
        node = todo.pop()
        if node is None or node in found:
            continue
        found.add(node)
        if node.op_type in _OF_SHAPES:
            continue
        read = [*node.inputs, *(v for body in bodies_of(node) for v in _read_in(body))]
        todo += [v.producer() for v in read if v is not None]
    return found


def _read_in(body: ir.Graph) -> list[ir.Value | None]:
    return [v for inner in body.all_nodes() for v in inner.inputs] + list(body.outputs)
