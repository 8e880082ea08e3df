"""Random graphs: nodes drawn one after the other, each on values that are there, evaluated as they are drawn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxbridge.runtime import Executor
from tests.fuzz import layers, nested, rare_operators  # noqa: F401  register how their operators are drawn
from tests.fuzz.draw import Draw
from tests.fuzz.operators import SPECS, Held
from tests.fuzz.versions_and_types import Node, array_of, code, older, retyped


@dataclass
class Graph:
    """A graph with the values that its inputs and nodes have; `error` is ours for its last node, if that fails."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, Any] = field(default_factory=dict)
    held: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    opset: int = 24

    def model(self, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
        """All nodes with every result an output, or some of them with what they read as inputs."""
        chosen = self.nodes if nodes is None else nodes
        made = [o for n in chosen for o in n.output]
        read = [i for n in chosen for i in n.input if i and i not in made and i not in self.held]
        inputs = [declared(name, self.values[name]) for name in dict.fromkeys(read)]
        weights = [onnx.numpy_helper.from_array(v, n) for n, v in self.held.items() if any(n in c.input for c in chosen)]
        outputs = [helper.make_value_info(o, onnx.TypeProto()) for o in made]
        graph = helper.make_graph(chosen, "g", inputs, outputs, weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def inputs_of(self, model: onnx.ModelProto) -> dict[str, Any]:
        return {i.name: self.values[i.name] for i in model.graph.input}


def declared(name: str, value: Any) -> onnx.ValueInfoProto:
    """A name with the type and the sizes of a value."""
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, code(value[0]), None)
    return helper.make_tensor_value_info(name, code(value), value.shape)


def _allowed(d: Draw, opset: int) -> Node:
    """A node that the version of the standard has, with inputs of types that the operator takes."""
    while True:
        node = older(d.pick(SPECS)(d), opset)
        if node is None:
            continue
        changed = older(retyped(d, node, opset), opset) if d.chance(0.3) else node
        return changed or node


def drawn(seed: int, most: int = 4) -> Graph:
    """The graph of a seed; a graph ends where our executor raises, and keeps the error."""
    d = Draw(seed)
    graph = Graph(opset=d.whole(7, 26) if d.chance(0.3) else d.pick((24, 26)))
    names: dict[int, str] = {}
    for at in range(d.whole(1, most)):
        op, inputs, attrs, outputs = _allowed(d, graph.opset)
        labels = []
        for i, item in enumerate(inputs):
            if item is None:
                labels.append("")
                continue
            array = array_of(item)
            array = np.asarray(array) if isinstance(array, np.generic) else array
            if id(array) not in names:
                names[id(array)] = name = f"{'w' if isinstance(item, Held) else 'x'}{at}_{i}"
                graph.values[name] = array
                (graph.held if isinstance(item, Held) else graph.feeds)[name] = array
            labels.append(names[id(array)])
        domain, _, kind = op.rpartition("::")
        node = helper.make_node(kind, labels, [f"y{at}_{i}" for i in range(outputs)], domain=domain, **attrs)
        graph.nodes.append(node)
        one = graph.model([node])
        try:
            results = Executor(one).run(None, graph.inputs_of(one))
        except Exception as e:
            graph.error = e
            return graph
        for name, value in zip(node.output, results, strict=True):
            graph.values[name] = value
            if isinstance(value, np.ndarray):
                names[id(value)] = name
                d.there.append(value)
    return graph
