"""Decompositions of ONNX Runtime's contrib operators (com.microsoft), which its optimizer and quantizer write into models.

They are applied when a model is read into the hub, so that no pass or backend needs to know these operators.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.builder.scratch_target import ScratchTarget
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.lowering import Call
from onnxbridge.rules import Rules

MICROSOFT = "com.microsoft::"

contrib = Rules("hub.contrib", package=__name__, writer=True)


def rank_of(value: ir.Value) -> int:
    """The rank of a value.

    Raises:
        Unsupported: if it is unknown.
    """
    if value.shape is None:
        raise Unsupported("a value of unknown rank")
    return len(value.shape)


def is_decomposable(node: ir.Node) -> bool:
    """Whether the operator of a node is not in the ONNX standard but has a decomposition here."""
    return not onnx.defs.has(node.op_type, node.domain) and name_of(node.op_type, node.domain) in contrib


def has_contrib_ops(model: ir.Model) -> bool:
    """Whether the model has operators that can be decomposed here."""
    return any(is_decomposable(node) for graph in every_graph(model) for node in graph)


class ContribDecomposer:
    """Decomposes contrib operators of a model whose value names are `names`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.writer = Builder(names=set(names))

    def put(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Replace a node by its decomposition, in place. Returns False, and keeps the node, if it cannot be decomposed."""
        if not is_decomposable(node):
            return False
        try:
            results = _target(self.writer).write(graph_reader.call_of(node), contrib)
        except ConversionError:
            self.writer.take()
            return False
        for output, found in zip(node.outputs, results, strict=False):
            if isinstance(found, ir.Value):  # models often do not declare the types of such nodes
                output.type = found.type if found.type is not None else output.type
                output.shape = found.shape if found.shape is not None else output.shape
        replace(node, self.writer.take(), results, self.writer, graph)
        return True


def _target(writer: Builder) -> ScratchTarget:
    return ScratchTarget("ONNX Runtime's contrib operators to ONNX", writer)


def check_supported(call: Call) -> None:
    """Raise a ConversionError with the reasons if a call cannot be decomposed."""
    _target(Builder()).write(call, contrib)
