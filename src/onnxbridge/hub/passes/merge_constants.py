"""Merges equal constants that are not weights."""

from __future__ import annotations

from collections import defaultdict

import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.fold import COMPUTED, FOLDED_ELEMENTS
from onnxbridge.hub.ir.schemas import array_of


class MergeConstants(ir.passes.InPlacePass):
    """Replaces equal constants that are computed, or written in the source's code, by the first, so that common subexpressions
    are found.

    Equal weights are not merged: each has its own name and may be trained separately.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        merged = [_merge(graph) for graph in (model.graph, *model.graph.subgraphs()) if isinstance(graph, ir.Graph)]
        return ir.passes.PassResult(model, modified=any(merged))


def _merge(graph: ir.Graph) -> bool:
    groups: dict[tuple[ir.DataType, tuple[int, ...]], list[ir.Value]] = defaultdict(list)
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.size > FOLDED_ELEMENTS or value.is_graph_output():
            continue
        if value.meta.get(COMPUTED) or provenance.state_of(tensor) == "constant":
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
