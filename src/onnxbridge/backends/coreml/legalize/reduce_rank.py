"""Reduces the rank of tensors with more axes than Core ML supports, by merging axes that an operator treats in the same way.

`x.view(1, 3, 4, 2, 4, 2).mean((3, 5))` has six axes. The mean only distinguishes four groups: the first three axes, the fourth,
the fifth and the sixth. The tensor of six axes is never written: its elements are stored in their order, in the shape that the
last operator produced, and reshaped to the axes that each operator distinguishes. Where more than one of these has a dynamic
size, the sizes are computed when the model runs: from another tensor with that size, or from the shape operand of a Reshape.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx_ir as ir

from onnxbridge.backends.coreml.legalize.reduce_rank_rules import RULES, Operand, reshape
from onnxbridge.backends.coreml.legalize.runtime_sizes import (
    BodyBuilder,
    NotReducible,
    RuntimeSizes,
    Sizes,
    exceeds_rank,
    size_of,
)
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call, Ref


@dataclass(frozen=True)
class RankReducedCall(Call):
    """A call on tensors of too high a rank, and the body that computes it at a lower rank."""

    body: Body | None = None


def rewrite(calls: Iterable[Call]) -> list[Call]:
    """Rewrite the calls without tensors of too high a rank; returns them unchanged if that is not possible."""
    calls = list(calls)
    if not any(exceeds_rank(v) for call in calls for v in _values(call)):
        return calls
    flattened: dict[ir.Value, ir.Value] = {}
    sizes = RuntimeSizes()
    rewritten: list[Call] = []
    try:
        for call in calls:
            sizes.add_shape_operand(call)
            rewritten += _rewrite_call(call, flattened, sizes)
            sizes.add_tensors(_values(call))
    except NotReducible:
        return calls
    return rewritten


def _values(call: Call) -> list[ir.Value]:
    keys = [i.key for i in call.inputs if isinstance(i, Ref)] + list(call.outputs)
    return [k for k in keys if isinstance(k, ir.Value)]


def _declared_sizes(value: ir.Value) -> Sizes:
    if value.shape is None:
        raise NotReducible
    declared_sizes = [size_of(value, axis) for axis in range(len(value.shape))]
    if 0 in declared_sizes:
        raise NotReducible
    return declared_sizes


def _rewrite_call(call: Call, flattened: dict[ir.Value, ir.Value], sizes: RuntimeSizes) -> list[Call]:
    values = _values(call)
    if not any(map(exceeds_rank, values)):
        if any(isinstance(a, Body) for a in call.attrs.values()) and flattened:
            raise NotReducible  # its subgraphs may read a value that is no longer written in its declared shape
        return [call]
    rule = RULES.get(call.op)
    used = [i for i, o in enumerate(call.outputs) if isinstance(o, ir.Value)]
    results = [o for o in call.outputs if isinstance(o, ir.Value)]
    if rule is None or not results:
        raise NotReducible
    if any(exceeds_rank(result) and result.is_graph_output() for result in results):
        raise NotReducible
    op = BodyBuilder(sizes)
    operands: list[Operand | None] = []
    for item in call.inputs:
        key = item.key if isinstance(item, Ref) else None
        if not isinstance(key, ir.Value):
            operands.append(None)
            continue
        known = key.const_value
        inner = op.input_for(flattened.get(key, key)) if known is None else op.constant(known.numpy())
        operands.append(Operand(inner, _declared_sizes(key)))
    made = rule(op, call, operands, _declared_sizes(results[0]))
    inner_results = [made[i] for i in used] if isinstance(made, tuple) else [made]
    for i, (result, inner) in enumerate(zip(results, inner_results, strict=True)):
        if not exceeds_rank(result):
            inner_results[i] = reshape(op, inner, _declared_sizes(result))
        elif inner in op.inputs.values():  # the same elements in the same order: nothing to compute
            flattened[result] = next(actual for actual, given in op.inputs.items() if given is inner)
            return []
        else:
            flattened[result] = ir.Value(name=result.name, type=result.type, shape=inner.shape)
    inner_results = [op.Identity(inner) if inner in op.inputs.values() else inner for inner in inner_results]
    body = Body(
        tuple(op.inputs.values()),
        list(graph_reader.calls_of(op.graph(list(op.inputs.values()), inner_results, call.op))),
        tuple(map(Ref, inner_results)),
    )
    name = f"{call.op} of {max(len(v.shape or ()) for v in values)} axes"
    outputs = tuple(flattened.get(result, result) for result in results)
    return [RankReducedCall(name, tuple(map(Ref, op.inputs)), {}, outputs, call.location, None, body)]
