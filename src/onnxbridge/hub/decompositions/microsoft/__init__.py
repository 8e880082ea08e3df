"""ONNX Runtime's own operators (com.microsoft), which its optimizer and quantizer put into files, in operators of ONNX.

They are written out where a file enters the hub, so nothing behind it meets them. A rule has the shape of every rule.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Unsupported
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.replacement import replace
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.hub.ir.scratch_target import Scratch
from onnxbridge.lowering import Call
from onnxbridge.rules import Rules

MICROSOFT = "com.microsoft::"

contrib = Rules("hub.contrib", package=__name__, writer=True)


def rank_of(value: ir.Value) -> int:
    """The number of dimensions.

    Raises:
        Unsupported: where it is not known.
    """
    if value.shape is None:
        raise Unsupported("a value of unknown rank")
    return len(value.shape)


def foreign(node: ir.Node) -> bool:
    """Whether a node is of an operator that ONNX has not, but that can be written in such as it has."""
    return not onnx.defs.has(node.op_type, node.domain) and name_of(node.op_type, node.domain) in contrib


def present(model: ir.Model) -> bool:
    """Whether the model has operators that could be written out."""
    return any(foreign(node) for graph in every_graph(model) for node in graph)


class Writing:
    """Writes them in a model whose values have these names."""

    def __init__(self, names: Iterable[str]) -> None:
        self.writer = Builder(names=set(names))

    def put(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Put operators of ONNX in the place of one node, in place; one that is not covered stays, and False is returned."""
        if not foreign(node):
            return False
        try:
            results = _target(self.writer).write(graph_reader.call_of(node), contrib)
        except ConversionError:
            self.writer.take()
            return False
        for output, found in zip(node.outputs, results, strict=False):
            if isinstance(found, ir.Value):  # what the file declares of such a node may be little
                output.type = found.type if found.type is not None else output.type
                output.shape = found.shape if found.shape is not None else output.shape
        replace(node, self.writer.take(), results, self.writer, graph)
        return True


def _target(writer: Builder) -> Scratch:
    return Scratch("ONNX Runtime's operators in ONNX's", writer)


def check(call: Call) -> None:
    """Raise a ConversionError that tells what is in the way of writing a call out, if something is."""
    _target(Builder()).write(call, contrib)
