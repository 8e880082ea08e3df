"""Model-local functions as a frontend writes them: an operator that a library has made, kept as one call, with what it computes.

A function's name, domain and body are the model's own; whoever has a kernel of that name may take it instead of the body.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import onnx_ir as ir

from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import version_of

_KEPT = "onnxbridge.kept"  # in a function's meta: which of its results are outputs


def call(
    op: Builder, domain: str, name: str, body: Callable[..., Any], inputs: Sequence[ir.Value], form: Hashable,
    labels: Sequence[str],
) -> tuple[ir.Value | None, ...]:  # fmt: skip
    """Write a call of a function, whose inputs are named by `labels`; its body is run once for each `form` and type of inputs.

    The second body of a name gets a number behind it. A result that is None, as of code that returns nothing in its place, is no
    output of the function.
    """
    key = domain, name, form, tuple(_of(v) for v in inputs)
    function = op.functions.get(key)
    if function is None:
        given = [(n, ir.TypeAndShape(v.type, v.shape), _notes(v)) for n, v in zip(labels, inputs, strict=True)]
        kept: list[bool] = []

        def without_none(*operands: Any) -> tuple[Any, ...]:
            results = body(*operands)
            results = results if isinstance(results, tuple) else (results,)
            kept[:] = [r is not None for r in results]
            return tuple(r for r in results if r is not None)

        graph = op.body(name, without_none, given)
        graph.meta[_KEPT] = kept
        _own_constants(op, graph)
        domains = {n.domain for g in (graph, *graph.subgraphs()) for n in g} - {""}
        graph.opset_imports.update({"": OPSET} | {d: version_of(d) for d in sorted(domains)})
        taken = {(f.domain, f.name) for f in op.functions.values()}
        label, n = name, 0
        while (domain, label) in taken:
            n += 1
            label = f"{name}_{n}"
        function = op.functions[key] = ir.Function(domain, label, graph=graph, attributes=[])
    node = ir.Node(domain, function.name, list(inputs), num_outputs=len(function.outputs))
    for value, inside in zip(node.outputs, function.outputs, strict=True):
        value.type, value.shape = inside.type, inside.shape
    op.append(node)
    outputs = iter(node.outputs)
    return tuple(next(outputs) if k else None for k in function.graph.meta[_KEPT])


def _of(value: ir.Value) -> tuple[Any, ...]:
    """What a body may have been written for: dtype, shape, and what rules note on a value."""
    shape = None if value.shape is None else tuple(d if isinstance(d, int) else str(d.value) for d in value.shape)
    return value.dtype, shape, tuple(sorted(_notes(value)))


def _notes(value: ir.Value) -> dict[str, Any]:
    return {k: value.meta[k] for k in ("number", "strided") if k in value.meta}


def _own_constants(op: Builder, graph: ir.Graph) -> None:
    """Write the constants that the graph uses as nodes of its own: a function sees nothing from around it."""
    made: dict[ir.Value, ir.Value] = {}
    for inner in (graph, *graph.subgraphs()):
        for node in list(inner):
            for i, value in enumerate(node.inputs):
                if value is None or value.producer() is not None or value.const_value is None:
                    continue
                if value not in made:
                    constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
                    constant.outputs[0].name = constant.name = op.unique(value.name or "constant")
                    constant.outputs[0].type, constant.outputs[0].shape = value.type, value.shape
                    source_locations.write(constant, source_locations.read(node))
                    made[value] = constant.outputs[0]
                node.replace_input_with(i, made[value])
    first = next(iter(graph), None)
    nodes = [v.producer() for v in made.values()]
    if first is None:
        graph.extend(nodes)  # type: ignore[arg-type]
    else:
        graph.insert_before(first, nodes)  # type: ignore[arg-type]
