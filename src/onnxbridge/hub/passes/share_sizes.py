"""Takes each dynamic size from the input that has it, so that what is computed from it is computed once.

A source asks for the size of whatever tensor is at hand: each layer of a transformer then has masks and positions of its own,
which no longer differ once their sizes are the same value.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.unique_name import unique_name
from onnxbridge.hub.passes.symbolic_sizes import extent, selected_size


class ShareSizes(ir.passes.InPlacePass):
    """Replaces sizes of other values by sizes of inputs, where these have the same name.

    The names must hold for every input: those that a frontend has given, not those that a file declares.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        graph = model.graph
        inputs: dict[Hashable, tuple[ir.Value, int]] = {}
        for value in graph.inputs:
            for axis, size in enumerate(value.shape or ()):
                if isinstance(size, ir.SymbolicDim) and size.value is not None:
                    inputs.setdefault(size.value, (value, axis))
        shared = _Shared(graph, names_in(model))
        modified = False
        for node in list(graph):
            found = selected_size(node)
            source = inputs.get(extent(*found)) if found is not None else None
            if source is None or node.outputs[0].is_graph_output():
                continue
            node.outputs[0].replace_all_uses_with(shared.size(*source, node.outputs[0], before=node))
            modified = True
        return ir.passes.PassResult(model, modified=modified)


class _Shared:
    """The sizes of inputs, each at the first node that needs it."""

    def __init__(self, graph: ir.Graph, names: set[str]) -> None:
        self._graph, self._names = graph, names
        self._made: dict[tuple[str, int, int, ir.DataType | None], ir.Value] = {}

    def size(self, value: ir.Value, axis: int, like: ir.Value, before: ir.Node) -> ir.Value:
        """An input's size with the rank and dtype of `like`."""
        rank = len(like.shape) if like.shape is not None else 1
        key = (value.name or "", axis, rank, like.dtype)
        if key not in self._made:
            name = f"{value.name}.size_{axis}"
            attributes = [ir.AttrInt64("start", axis), ir.AttrInt64("end", axis + 1)]
            made = self._add(ir.Node("", "Shape", [value], attributes), name, ir.Shape([1]), ir.DataType.INT64, before)
            if rank == 0:
                zero = ir.tensor(np.zeros(1, np.int64), name=unique_name(f"{name}.axis", self._names))
                axes = ir.Value(name=zero.name, type=ir.TensorType(zero.dtype), shape=ir.Shape([1]), const_value=zero)
                self._graph.register_initializer(axes)
                made = self._add(ir.Node("", "Squeeze", [made, axes]), name, ir.Shape([]), ir.DataType.INT64, before)
            if like.dtype not in (None, ir.DataType.INT64):
                to = [ir.AttrInt64("to", int(like.dtype))]
                made = self._add(ir.Node("", "Cast", [made], to), name, made.shape, like.dtype, before)
            self._made[key] = made
        return self._made[key]

    def _add(self, node: ir.Node, name: str, shape: ir.Shape | None, dtype: ir.DataType | None, before: ir.Node) -> ir.Value:
        made = node.outputs[0]
        made.name = node.name = unique_name(name, self._names)
        made.type, made.shape = ir.TensorType(dtype or ir.DataType.INT64), shape
        source_locations.write(node, source_locations.read(before))
        self._graph.insert_before(before, node)
        return made
