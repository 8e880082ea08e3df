"""Removes identities."""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from onnxbridge.hub.builder.replacement import merge_declared
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.trainable import is_trained

_NEUTRAL = {"Mul": (1, (0, 1)), "Div": (1, (1,)), "Pow": (1, (1,)), "Sub": (0.0, (1,)), "Add": (-0.0, (0, 1))}
"""The number that leaves the other operand unchanged, negative zeros too, and the operands that it may be."""
_MOST_ELEMENTS = 1 << 16


class RemoveIdentities(ir.passes.InPlacePass):
    """Replaces every Identity by its input, and products by 1, sums with 0 and powers of 1, also in subgraphs.

    A node is kept if its result is a graph output that needs a node: its input is a graph input, a weight, another output, or a
    value of an outer graph. A number that is trained is no identity.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        dropped = [_remove(node, source) for node in list(model.graph.all_nodes()) for source in _unchanged_input(node)]
        return ir.passes.PassResult(model, modified=any(dropped))


def _unchanged_input(node: ir.Node) -> Iterable[ir.Value]:
    """The input that a node returns unchanged, if there is one."""
    if node.domain:
        return
    if node.op_type == "Identity" and node.inputs[0] is not None:
        yield node.inputs[0]
        return
    number, operands = _NEUTRAL.get(node.op_type, (0, ()))
    for i in operands:
        value, other = node.inputs[i], node.inputs[1 - i]
        if value is None or other is None or other.shape is None or other.dtype != node.outputs[0].dtype:
            continue
        if _is(value, number) and _adds_nothing(value, other.shape):
            yield other
            return


def _is(value: ir.Value, number: float) -> bool:
    """Whether a value is a constant, not trained, that has only this number; of zeros the sign counts for floats."""
    if value.const_value is None or value.is_graph_input() or not 0 < value.const_value.size <= _MOST_ELEMENTS:
        return False
    known = constant_array(value)
    if known is None or known.dtype.kind in "bOU" or is_trained(value):
        return False
    element = known.reshape(-1)[0]
    same_sign = math.copysign(1, float(element)) == math.copysign(1, number)
    return bool((known == number).all()) and (known.dtype.kind in "iu" or (same_sign and (number != 0 or known.size == 1)))


def _adds_nothing(value: ir.Value, shape: ir.Shape) -> bool:
    """Whether a tensor of this shape keeps it when it is combined with a value."""
    own = list(value.shape or ())
    return len(own) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(own), reversed(list(shape)), strict=False))


def _remove(node: ir.Node, source: ir.Value) -> bool:
    result, graph = node.outputs[0], node.graph
    if graph is None:
        return False
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
    if source.type is None:
        source.type = result.type
    source.shape = merge_declared(source.shape, result.shape)
    name = result.name if result.is_graph_output() else source.name
    ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    source.name = name
    return True
