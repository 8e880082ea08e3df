"""Model-local functions for a library's custom operators: the operator stays one call, and the function body defines it.

A target that has a kernel of the function's domain and name may use it instead of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import version_of
from onnxbridge.hub.ir.unique_name import free_name

_KEPT = "onnxbridge.kept"  # key in a function's meta: which results of its code are outputs


def call(
    op: Builder, domain: str, name: str, body: Callable[..., Any], inputs: Sequence[ir.Value], form: Hashable,
    labels: Sequence[str],
) -> tuple[ir.Value | None, ...]:  # fmt: skip
    """Create a call of a function with inputs named `labels`; `body` is traced once for each `form` and types of the inputs.

    Further bodies of the same name get a number appended. Results that are None are not outputs of the function.
    """
    key = domain, name, form, tuple(_signature(v) for v in inputs)
    function = op.functions.get(key)
    if function is None:
        parameters = [(n, ir.TypeAndShape(v.type, v.shape), _notes(v)) for n, v in zip(labels, inputs, strict=True)]
        kept: list[bool] = []

        def without_none(*operands: Any) -> tuple[Any, ...]:
            results = body(*operands)
            results = results if isinstance(results, tuple) else (results,)
            kept[:] = [r is not None for r in results]
            return tuple(r for r in results if r is not None)

        graph = op.body(name, without_none, parameters)
        graph.meta[_KEPT] = kept
        _own_constants(op, graph)
        domains = {n.domain for g in (graph, *graph.subgraphs()) for n in g} - {""}
        graph.opset_imports.update({"": OPSET} | {d: version_of(d) for d in sorted(domains)})
        names = {(f.domain, f.name) for f in op.functions.values()}
        label = free_name(name, lambda label: (domain, label) in names)
        function = op.functions[key] = ir.Function(domain, label, graph=graph, attributes=[])
    node = ir.Node(domain, function.name, list(inputs), num_outputs=len(function.outputs))
    for value, inside in zip(node.outputs, function.outputs, strict=True):
        value.type, value.shape = inside.type, inside.shape
    op.append(node)
    outputs = iter(node.outputs)
    return tuple(next(outputs) if k else None for k in function.graph.meta[_KEPT])


def _signature(value: ir.Value) -> tuple[Any, ...]:
    """What a traced body depends on: dtype, shape, and metadata that rules attach to a value."""
    shape = None if value.shape is None else tuple(d if isinstance(d, int) else str(d.value) for d in value.shape)
    return value.dtype, shape, tuple(sorted(_notes(value)))


def _notes(value: ir.Value) -> dict[str, Any]:
    return {k: value.meta[k] for k in ("number", "strided") if k in value.meta}


def _own_constants(op: Builder, graph: ir.Graph) -> None:
    """Copy the constants that the graph uses into Constant nodes, since a function cannot use outer values."""
    created: dict[ir.Value, ir.Value] = {}
    for inner in (graph, *graph.subgraphs()):
        for node in list(inner):
            for i, value in enumerate(node.inputs):
                if value is None or value.producer() is not None or value.const_value is None:
                    continue
                if value not in created:
                    constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
                    constant.outputs[0].name = constant.name = op.unique(value.name or "constant")
                    constant.outputs[0].type, constant.outputs[0].shape = value.type, value.shape
                    source_locations.write(constant, source_locations.read(node))
                    created[value] = constant.outputs[0]
                node.replace_input_with(i, created[value])
    first = next(iter(graph), None)
    nodes = [v.producer() for v in created.values()]
    if first is None:
        graph.extend(nodes)  # type: ignore[arg-type]
    else:
        graph.insert_before(first, nodes)  # type: ignore[arg-type]
