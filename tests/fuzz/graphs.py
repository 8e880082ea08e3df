"""Random graphs, built node by node; each node is evaluated, and later nodes may use its outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxbridge.runtime import Executor
from tests.fuzz import layers, nested_graphs, rare_operators  # noqa: F401  they register their generators
from tests.fuzz.operators import GENERATORS, Constant
from tests.fuzz.random_values import RandomValues
from tests.fuzz.versions_and_types import Node, array_of, at_opset, elem_type, with_other_dtype


@dataclass
class Graph:
    """A graph with all its values; `error` is what the executor raised for the last node, if it did."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    feeds: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    opset: int = 24

    def model(self, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
        """A model of all or some of the nodes, in which every result is an output and what they read are inputs."""
        chosen = self.nodes if nodes is None else nodes
        produced = [o for n in chosen for o in n.output]
        inputs_read = [i for n in chosen for i in n.input if i and i not in produced and i not in self.constants]
        inputs = [value_info_of(name, self.values[name]) for name in dict.fromkeys(inputs_read)]
        weights = [onnx.numpy_helper.from_array(v, n) for n, v in self.constants.items() if any(n in c.input for c in chosen)]
        outputs = [helper.make_value_info(o, onnx.TypeProto()) for o in produced]
        graph = helper.make_graph(chosen, "g", inputs, outputs, weights)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 3)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds_of(self, model: onnx.ModelProto) -> dict[str, Any]:
        return {i.name: self.values[i.name] for i in model.graph.input}


def value_info_of(name: str, value: Any) -> onnx.ValueInfoProto:
    """The value info of a name with the type and shape of a value."""
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, elem_type(value[0]), None)
    return helper.make_tensor_value_info(name, elem_type(value), value.shape)


def _random_node(d: RandomValues, opset: int) -> Node:
    """A random node that is valid at the opset."""
    while True:
        node = at_opset(d.choice(GENERATORS)(d), opset)
        if node is None:
            continue
        changed = at_opset(with_other_dtype(d, node, opset), opset) if d.coin(0.3) else node
        return changed or node


def random_graph(seed: int, max_nodes: int = 4) -> Graph:
    """The graph of a seed. If the executor raises, the graph ends with that node and stores the error."""
    d = RandomValues(seed)
    graph = Graph(opset=d.integer(7, 26) if d.coin(0.3) else d.choice((24, 26)))
    names_by_id: dict[int, str] = {}
    for position in range(d.integer(1, max_nodes)):
        op, inputs, attrs, outputs = _random_node(d, graph.opset)
        labels = []
        for i, item in enumerate(inputs):
            if item is None:
                labels.append("")
                continue
            array = array_of(item)
            array = np.asarray(array) if isinstance(array, np.generic) else array
            if id(array) not in names_by_id:
                names_by_id[id(array)] = name = f"{'w' if isinstance(item, Constant) else 'x'}{position}_{i}"
                graph.values[name] = array
                (graph.constants if isinstance(item, Constant) else graph.feeds)[name] = array
            labels.append(names_by_id[id(array)])
        domain, _, kind = op.rpartition("::")
        node = helper.make_node(kind, labels, [f"y{position}_{i}" for i in range(outputs)], domain=domain, **attrs)
        graph.nodes.append(node)
        single = graph.model([node])
        try:
            results = Executor(single).run(None, graph.feeds_of(single))
        except Exception as e:
            graph.error = e
            return graph
        for name, value in zip(node.output, results, strict=True):
            graph.values[name] = value
            if isinstance(value, np.ndarray):
                names_by_id[id(value)] = name
                d.existing.append(value)
    return graph
