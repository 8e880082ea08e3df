"""Attributes of float64 operators: ONNX keeps them as float32, and 1e-5 in float32 is another number than in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.replacement import replace
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.ir.values import rank
from onnxbridge.hub.opset import written_nodes

Written = Callable[..., Any]


def write_out_inexact(model: ir.Model) -> None:
    """Write out, in place, every float64 operator with an attribute that float32 does not hold: its number as a constant."""
    from onnxbridge.hub.decompositions.standard import expand

    names = {v.name for g in every_graph(model) for v in (*g.inputs, *g.initializers.values(), *_results(g)) if v.name}
    node_names = {n.name for g in every_graph(model) for n in g if n.name}
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            if node.domain or not _inexact(node):
                continue
            rule = expand.get(node.op_type)
            written = _WRITTEN.get(node.op_type) or (rule.lower if rule is not None else None)
            if written is not None:
                _write_out(node, written, Builder(OPSET, names), node_names)
    written_nodes.keep_constants(model.graph, False, names, node_names)


def _results(graph: ir.Graph) -> list[ir.Value]:
    return [v for node in graph for v in node.outputs]


def _inexact(node: ir.Node) -> bool:
    given = node.inputs[0] if node.inputs else None
    if given is None or given.dtype != ir.DataType.DOUBLE:
        return False
    floats = [a.as_float() for a in node.attributes.values() if not a.is_ref() and a.type == ir.AttributeType.FLOAT]
    return any(float(np.float32(v)) != v for v in floats)


def _write_out(node: ir.Node, written: Written, op: Builder, node_names: set[str]) -> None:
    attrs = {a.name: plain(a) for a in node.attributes.values()}
    if node.op_type in _STASHING:  # frameworks compute float64 in float64
        attrs["stash_type"] = int(ir.DataType.DOUBLE)
    results = written(op, *node.inputs, **attrs)
    results = results if isinstance(results, tuple) else (results,)
    name = written_nodes.namer(node, op, node_names)
    replace(node, op.take(), results[: len(node.outputs)], op, name=name)


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
    centred = op.Sub(grouped, op.ReduceMean(grouped, [2]))
    deviation = op.Sqrt(op.Add(op.ReduceMean(op.Mul(centred, centred), [2]), epsilon))
    by_channel = np.array([-1] + [1] * (rank(X) - 2))
    scaled = op.Mul(op.Reshape(op.Div(centred, deviation), shape), op.Reshape(scale, by_channel))
    return op.Add(scaled, op.Reshape(bias, by_channel))


_STASHING = frozenset({"LayerNormalization", "RMSNormalization"})
_WRITTEN: dict[str, Written] = {
    "LeakyRelu": _leaky_relu, "Elu": _elu, "Selu": _selu, "GroupNormalization": _group_normalization,
}  # fmt: skip
"""Operators that have no expansion which others could use."""
