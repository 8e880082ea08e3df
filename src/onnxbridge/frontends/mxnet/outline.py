"""What a symbol says of itself without the shapes of its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxbridge.diagnostics import merge
from onnxbridge.errors import Problem, SourceLocation
from onnxbridge.formats.mxnet.read_symbol import Graph, Node
from onnxbridge.frontends.mxnet import graph_reader, output_names
from onnxbridge.frontends.mxnet.operator_aliases import first_name
from onnxbridge.frontends.mxnet.ops import rule
from onnxbridge.plugin_protocols import Outline
from onnxbridge.rules import no_rule


def outline(graph: Graph, params: Mapping[str, np.ndarray[Any, Any]]) -> Outline:
    """The inputs, outputs, weights and operators of a symbol, and the operators that have no rule."""
    unused = set(graph_reader.labels(graph, params))
    inputs = [graph.nodes[i].name for i in graph_reader.free_variables(graph, params) if i not in unused]
    arrays = {n.name: params[n.name] for n in graph.nodes if n.op == "null" and n.name in params}
    weights = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
    operators = [node for node in _nodes(graph) if node.op != "null"]
    unknown = [_problem(n, _kind(n)) for n in operators if _kind(n) not in rule]
    return Outline(inputs, output_names.outputs(graph), weights, Counter(node.op for node in operators), merge(unknown))


def _problem(node: Node, kind: str) -> Problem:
    error = no_rule(kind, rule)
    return Problem(kind, error.reason, error.hint, (SourceLocation(node=node.name),))


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs:
            yield from _nodes(inner)


def _kind(node: Node) -> str:
    kind = first_name(node.op, rule)
    return f"Custom:{node.attrs.get('op_type', '')}" if kind == "Custom" else kind
