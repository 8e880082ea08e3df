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
from onnxbridge.hub.ir.fold import static
from onnxbridge.lowering import Body, Call, Ref, lower


class _Scratch:
    """The target in which one operator's expansion is written."""

    def __init__(self, call: Call) -> None:
        self.direction = f"the expansion of {call.op}"
        self.writer = Builder()

    def static(self, key: Any, value: Any) -> Any:
        return static(value)

    def scope(self, call: Call) -> Any:
        return self.writer.scope(call.op, call.where)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        return results

    def expand(self, call: Call) -> None:
        return None


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
    target = _Scratch(call)
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
    outputs = tuple(("result", i) if key is not None else None for i, key in enumerate(call.outputs))
    lower([Call(call.op, call.inputs, call.attrs, outputs, call.where, call.schema)], expand, values, target)
    results = [values[k] if k is not None else None for k in outputs]
    graph = target.writer.graph([], list({id(r): r for r in results if r is not None}.values()), call.op)
    return Body(tuple(inputs), list(graph_reader.of(graph)), tuple(None if r is None else Ref(r) for r in results))
