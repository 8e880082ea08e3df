"""Decomposes float64 operators with attributes or constants that are not representable in float32, in which ONNX stores them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.ir.values import rank
from onnxbridge.hub.opset import written_nodes

Decomposition = Callable[..., Any]


def decompose_inexact(model: ir.Model) -> None:
    """Decompose, in place, every float64 operator with an attribute that is inexact in float32, with the number as a constant."""
    from onnxbridge.hub.decompositions.standard import decompose

    names = {v.name for g in every_graph(model) for v in (*g.inputs, *g.initializers.values(), *_results(g)) if v.name}
    node_names = {n.name for g in every_graph(model) for n in g if n.name}
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain or not _inexact(node):
                continue
            rule = decompose.get(node.op_type)
            decomposition = _DECOMPOSITIONS.get(node.op_type) or (rule.lower if rule is not None else None)
            if decomposition is not None:
                _decompose(node, decomposition, Builder(OPSET, names), node_names)
    written_nodes.register_constants(model.graph, False, names, node_names)


def _results(graph: ir.Graph) -> list[ir.Value]:
    return [v for node in graph for v in node.outputs]


def _inexact(node: ir.Node) -> bool:
    first = node.inputs[0] if node.inputs else None
    if first is None or first.dtype != ir.DataType.DOUBLE:
        return False
    if node.op_type in _FLOAT32_CONSTANTS:
        return True
    floats = [a.as_float() for a in node.attributes.values() if not a.is_ref() and a.type == ir.AttributeType.FLOAT]
    return any(float(np.float32(v)) != v for v in floats)


def _decompose(node: ir.Node, decomposition: Decomposition, op: Builder, node_names: set[str]) -> None:
    attrs = {a.name: plain(a) for a in node.attributes.values()}
    if node.op_type in _WITH_STASH_TYPE:  # frameworks compute float64 in float64
        attrs["stash_type"] = int(ir.DataType.DOUBLE)
    results = decomposition(op, *node.inputs, **attrs)
    results = results if isinstance(results, tuple) else (results,)
    name = written_nodes.namer(node, op, node_names)
    replace(node, op.take(), results[: len(node.outputs)], op, name=name)


def _hard_swish(op: Any, X: Any) -> Any:
    return op.Mul(X, op.Div(op.Clip(op.Add(X, 3.0), 0.0, 6.0), 6.0))


def _leaky_relu(op: Any, X: Any, *, alpha: float = 0.01) -> Any:
    return op.Where(op.Less(X, 0.0), op.Mul(X, alpha), X)


def _elu(op: Any, X: Any, *, alpha: float = 1.0) -> Any:
    return op.Where(op.Less(X, 0.0), op.Mul(op.Elu(X), alpha), X)


def _selu(op: Any, X: Any, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Any:
    return op.Mul(_elu(op, X, alpha=alpha), gamma)


def _group_normalization(
    op: Any, X: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5, num_groups: int = 1, stash_type: int = 1
) -> Any:
    shape = op.Shape(X)
    grouped = op.Reshape(X, np.array([0, num_groups, -1]))
    centered = op.Sub(grouped, op.ReduceMean(grouped, [2]))
    deviation = op.Sqrt(op.Add(op.ReduceMean(op.Mul(centered, centered), [2]), epsilon))
    by_channel = np.array([-1] + [1] * (rank(X) - 2))
    scaled = op.Mul(op.Reshape(op.Div(centered, deviation), shape), op.Reshape(scale, by_channel))
    return op.Add(scaled, op.Reshape(bias, by_channel))


_FLOAT32_CONSTANTS = frozenset({"Gelu", "HardSwish"})
"""Operators whose definition has constants in float32."""
_WITH_STASH_TYPE = frozenset({"LayerNormalization", "RMSNormalization"})
_DECOMPOSITIONS: dict[str, Decomposition] = {
    "HardSwish": _hard_swish, "LeakyRelu": _leaky_relu, "Elu": _elu, "Selu": _selu, "GroupNormalization": _group_normalization,
}  # fmt: skip
"""Operators that have no general decomposition, or one whose attributes are inexact."""
