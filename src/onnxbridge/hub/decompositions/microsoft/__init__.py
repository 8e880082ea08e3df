"""ONNX Runtime's own operators (com.microsoft), which its optimizer and quantizer put into files, in operators of ONNX.

They are written out where a file enters the hub, so nothing behind it meets them. A rule has the shape of every rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Unsupported
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.graphs import constants_in, every_graph
from onnxbridge.hub.ir.schemas import name_of
from onnxbridge.lowering import Call, lower
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
    """The target in which they are written."""

    direction = "ONNX Runtime's operators in ONNX's"

    def __init__(self, names: Iterable[str]) -> None:
        self.writer = Builder(names=set(names))

    def static(self, key: Any, value: Any) -> Any:
        return static(value)

    def scope(self, call: Call) -> Any:
        return self.writer.scope(call.op, call.where)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return results

    def expand(self, call: Call) -> None:
        return None

    def put(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Put operators of ONNX in the place of one node, in place; one that is not covered stays, and False is returned."""
        if not foreign(node):
            return False
        try:
            results = _lowered(graph_reader.call_of(node), self)
        except ConversionError:
            self.writer.take()
            return False
        written = self.writer.take()
        made = {o for n in written for o in n.outputs}
        ends: list[tuple[ir.Value, ir.Value]] = []
        for output, found in zip(node.outputs, results, strict=False):
            if found is None or not (output.uses() or output.is_graph_output()):
                continue
            if found not in made or any(found is end for _, end in ends):
                found = self.writer.Identity(found)
                written += self.writer.take()
            ends.append((output, found))
        graph.insert_before(node, written)
        for v in constants_in(written):
            graph.register_initializer(v)
        for output, found in ends:
            found.shape = found.shape if found.shape is not None else output.shape
            output.replace_all_uses_with(found, replace_graph_outputs=True)
            found.name, output.name = output.name, None
        graph.remove(node, safe=True)
        return True


def _lowered(call: Call, target: Writing) -> tuple[Any, ...]:
    keys = tuple(None if key is None else ("result", i) for i, key in enumerate(call.outputs))
    values: dict[Any, Any] = {item.key: item.key for item in call.inputs if item is not None}
    lower([Call(call.op, call.inputs, call.attrs, keys, call.where, call.schema)], contrib, values, target)
    return tuple(None if key is None else values[key] for key in keys)


def check(call: Call) -> None:
    """Raise a ConversionError that tells what is in the way of writing a call out, if something is."""
    _lowered(call, Writing(()))
