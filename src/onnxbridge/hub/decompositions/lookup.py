"""The decomposition of a call: ours where there is one, else the function body of the ONNX standard."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.hub.decompositions import function_bodies
from onnxbridge.hub.decompositions.microsoft import check, contrib
from onnxbridge.hub.decompositions.microsoft.unsupported import refuse
from onnxbridge.hub.decompositions.standard import expand
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.scratch_target import Scratch
from onnxbridge.lowering import Body, Call, Ref


def body_of(call: Call) -> Body | None:
    """The expansion of a call whose keys are hub values, None where there is none.

    Raises:
        ConversionError: if the expansion does not cover this case.
    """
    if call.op in contrib:  # what could be written out where the file was read has been
        check(call)
    refuse(call)
    if call.op not in expand:
        return function_bodies.body_of(call)
    target = Scratch(f"the expansion of {call.op}", Builder())
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
    results = target.write(call, expand, values)
    graph = target.writer.graph([], list({id(r): r for r in results if r is not None}.values()), call.op)
    return Body(tuple(inputs), list(graph_reader.of(graph)), tuple(None if r is None else Ref(r) for r in results))
