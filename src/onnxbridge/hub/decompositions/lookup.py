"""Looks up the decomposition of a call: onnxbridge's own if there is one, else the function body in the ONNX standard."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.scratch_target import ScratchTarget
from onnxbridge.hub.decompositions import function_bodies
from onnxbridge.hub.decompositions.microsoft import check_supported, contrib
from onnxbridge.hub.decompositions.microsoft.unsupported import raise_if_unsupported
from onnxbridge.hub.decompositions.standard import decompose
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Body, Call, Ref


def decomposition_of(call: Call) -> Body | None:
    """The decomposition of a call whose input keys are hub values; None if the operator has none.

    Raises:
        ConversionError: if the decomposition does not support these inputs or attributes, or the operator is known to be
            unsupported.
    """
    if call.op in contrib:  # decomposed when the model was read, unless unsupported
        check_supported(call)
    raise_if_unsupported(call)
    if call.op not in decompose:
        return function_bodies.function_body_of(call)
    target = ScratchTarget(f"decomposition of {call.op}", Builder())
    values: dict[Any, Any] = {}
    inputs: list[ir.Value | None] = []
    for item in call.inputs:
        if item is None:
            inputs.append(None)
            continue
        v = item.key
        copy = ir.Value(name=target.writer.unique(v.name or "input"), type=v.type, shape=v.shape, const_value=v.const_value)
        values[v] = copy
        inputs.append(copy)
    results = target.write(call, decompose, values)
    graph = target.writer.graph([], list({id(r): r for r in results if r is not None}.values()), call.op)
    return Body(tuple(inputs), list(graph_reader.calls_of(graph)), tuple(None if r is None else Ref(r) for r in results))
