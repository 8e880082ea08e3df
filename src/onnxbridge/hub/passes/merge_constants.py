"""Keeps one of several computed constants that are equal."""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from onnxbridge.hub.ir.fold import COMPUTED, FOLDED_ELEMENTS
from onnxbridge.hub.ir.schemas import array_of


class MergeConstants(ir.passes.InPlacePass):
    """Gives the users of computed constants that are equal the first of them, so that what they compute can be told to be equal.

    Weights that happen to be equal stay apart: each has its own name, and in a target that trains its own future.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        merged = [_merge(graph) for graph in (model.graph, *model.graph.subgraphs()) if isinstance(graph, ir.Graph)]
        return ir.passes.PassResult(model, modified=any(merged))


def _merge(graph: ir.Graph) -> bool:
    groups: dict[tuple[ir.DataType, tuple[int, ...]], list[ir.Value]] = defaultdict(list)
    for value in graph.initializers.values():
        tensor = value.const_value
        if value.meta.get(COMPUTED) and tensor is not None and tensor.size <= FOLDED_ELEMENTS and not value.is_graph_output():
            groups[tensor.dtype, tuple(tensor.shape.numpy())].append(value)
    modified = False
    for values in groups.values():
        if len(values) == 1 or values[0].dtype == ir.DataType.STRING:
            continue
        kept: dict[bytes, ir.Value] = {}
        for value in values:
            first = kept.setdefault(array_of(value.const_value).tobytes(), value)  # type: ignore[arg-type]  # it has numbers
            if first is not value:
                ir.convenience.replace_all_uses_with(value, first)
                modified = True
    return modified
