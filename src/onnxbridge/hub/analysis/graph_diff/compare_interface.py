"""Compares the inputs and outputs of two models, and writes types and shapes as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.difference import InterfaceChange
from onnxbridge.hub.ir.values import dtype_name, shape_text

Pairs = list[tuple[ir.Value | None, ir.Value | None]]


def paired_values(first: Sequence[ir.Value], second: Sequence[ir.Value], by_name: bool = True) -> Pairs:
    """Inputs or outputs of two graphs in pairs: by name, then by a type that only one on each side has, then by position.

    Without `by_name`, by position only. Weights among inputs, as old files have them, are left out.
    """
    one, two = ([v for v in values if not (v.is_graph_input() and v.is_initializer())] for values in (first, second))
    known: dict[ir.Value, ir.Value] = {}
    for key in (lambda v: v.name, lambda v: type_text(v, names=False)) if by_name else ():
        left, right = ([v for v in values if v not in done] for values, done in ((one, known), (two, set(known.values()))))
        counts, others = Counter(map(key, left)), Counter(map(key, right))
        unique = {key(v): v for v in right if others[key(v)] == 1}
        known |= {v: unique[key(v)] for v in left if counts[key(v)] == 1 and key(v) in unique}
    taken = set(known.values())
    rest = iter([v for v in two if v not in taken])
    found: Pairs = [(v, known[v] if v in known else next(rest, None)) for v in one]
    return found + [(None, v) for v in rest]


def compare_interface(first: ir.Graph, second: ir.Graph) -> tuple[InterfaceChange, ...]:
    """The inputs and outputs whose name, type or shape differs."""
    found = []
    for kind, one, two in (("input", first.inputs, second.inputs), ("output", first.outputs, second.outputs)):
        for x, y in paired_values(one, two):
            old, new = (None if v is None else type_text(v) for v in (x, y))
            names = [v.name or "" for v in (x, y) if v is not None]
            if old != new or names[0] != names[-1]:
                found.append(InterfaceChange(kind, names[0], names[-1] if names[-1] != names[0] else "", old, new))
    return tuple(found)


def type_text(value: ir.Value, *, names: bool = True) -> str:
    """ "float32[N, 3]" of a tensor, "unknown" without a type or shape; without `names`, dynamic sizes are all "?"."""
    if not isinstance(value.type, ir.TensorType):
        return "unknown" if value.type is None else str(value.type)
    dtype = dtype_name(value.type.dtype)
    if value.shape is None:
        return f"{dtype} of unknown shape" if names else "unknown"
    if names:
        return f"{dtype}{shape_text(value.shape)}"
    return f"{dtype}[{', '.join(str(d) if isinstance(d, int) else '?' for d in value.shape)}]"
