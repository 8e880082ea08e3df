"""A model at given sizes of its dynamic dimensions."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub import passes
from onnxbridge.hub.ir import inference
from onnxbridge.hub.ir.graphs import every_graph, values_in


def at_sizes(model: ir.Model, sizes: Mapping[str, int]) -> ir.Model:
    """A copy of a hub model in which the named dynamic sizes have these numbers, with all shapes that follow from them. Branches
    that are certainly taken stand in the place of their If.

    Raises:
        UsageError: for a size that the model does not have, or that contradicts it.
    """
    known = dynamic_sizes(model)
    for name in sizes:
        if name not in known:
            has = f"its dynamic sizes are {', '.join(known)}" if known else "it has none"
            raise UsageError(f"the model has no dynamic size {name!r}; {has}")
    made = model.clone()
    for graph in every_graph(made):
        for value in values_in(graph):
            if value.shape is not None and value.const_value is None:
                value.shape = ir.Shape([sizes.get(getattr(d, "value", None) or "", d) for d in value.shape])
    try:
        if sizes or any(node.op_type == "If" for node in made.graph):
            passes.infer(made)
    except inference.Contradiction as e:
        given = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise UsageError(f"the model does not take inputs of these sizes ({given}): {e}") from e
    return made


def dynamic_sizes(model: ir.Model) -> list[str]:
    """The names of the dynamic sizes of the inputs, in order; an unnamed one is "input axis 0"."""
    found: dict[str, None] = {}
    for value in model.graph.inputs:
        for axis, d in enumerate(value.shape or ()):
            if not isinstance(d, int):
                found[d.value or f"{value.name} axis {axis}"] = None
    return list(found)
