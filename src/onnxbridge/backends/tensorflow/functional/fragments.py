"""Operators that no Keras layer computes, cut out of the hub graph as a graph of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir._cloner import Cloner

from onnxbridge.backends.tensorflow.functional.plan import inputs_of
from onnxbridge.backends.tensorflow.functional.values import SMALL
from onnxbridge.hub.ir.trainable import is_trained


@dataclass(frozen=True)
class Fragment:
    """Operators as a graph. Its inputs are `inputs`, then `weights`; its outputs `outputs`, in the order of these values."""

    graph: ir.Graph
    inputs: tuple[ir.Value, ...]
    weights: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]


def is_variable(value: ir.Value) -> bool:
    """Whether a constant becomes a weight, not a part of the graph."""
    if value.const_value is None or value.dtype in (None, ir.DataType.STRING):
        return False
    return is_trained(value) or value.const_value.size > SMALL


def fragment(
    nodes: Sequence[ir.Node], readers: Mapping[ir.Value, Collection[ir.Node]], shared: Collection[ir.Value], anchor: ir.Value,
    opsets: dict[str, int],
) -> Fragment:  # fmt: skip
    """The nodes as a graph; `readers` are the nodes that read a value, and weights in `shared` are inputs.

    Nodes that read nothing read the value `anchor`, which they ignore.
    """
    own = {o for n in nodes for o in n.outputs}
    read = list(dict.fromkeys(v for n in nodes for v in inputs_of(n) if v not in own or v.const_value is not None))
    weights = tuple(v for v in read if is_variable(v) and v not in shared)
    constants = [v for v in read if v.const_value is not None and v not in weights and v not in shared]
    inputs = tuple(v for v in read if v.const_value is None or v in shared) or (anchor,)
    outputs = tuple(
        o for n in nodes for o in n.outputs
        if o.const_value is None and (o.is_graph_output() or any(r not in nodes for r in readers.get(o, ())))
    )  # fmt: skip
    mapping: dict[ir.Value, ir.Value | None] = {}
    for i, value in enumerate((*inputs, *weights)):
        mapping[value] = ir.Value(name=value.name or f"input_{i}", type=value.type, shape=value.shape)
    for value in constants:
        mapping[value] = ir.Value(name=value.name, type=value.type, shape=value.shape, const_value=value.const_value)
    cloner = Cloner(attr_map={}, value_map=mapping, metadata_props={})
    copies = [cloner.clone_node(n) for n in nodes]
    graph = ir.Graph(
        [mapping[v] for v in (*inputs, *weights)], [mapping[v] for v in outputs], nodes=copies,  # type: ignore[misc]
        initializers=[mapping[v] for v in constants], opset_imports=opsets, name="operators",  # type: ignore[misc]
    )  # fmt: skip
    return Fragment(graph, inputs, weights, outputs)
