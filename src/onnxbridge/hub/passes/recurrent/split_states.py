"""Splits states of loops that are several values side by side into one state for each of them.

The cells of TensorFlow 1 concatenate their states with `state_is_tuple=False`; LSTM and other operators have one for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.passes.recurrent.affine_forms import columns
from onnxbridge.hub.passes.value_queries import is_used, is_zero, produced_by, skip_nodes


def split_states(model: ir.Model) -> None:
    """Split the concatenated states of a model's loops, in place."""
    op: Builder | None = None
    for node in list(model.graph.all_nodes()):
        if node.op_type != "Loop" or node.domain or node.graph is None:
            continue
        found = {i: parts for i in range(len(node.inputs) - 2) if (parts := _parts(node, i)) is not None}
        if found:
            op = op or Builder(names=names_in(model))
            _write(op, node, found, model.graph)


@dataclass(frozen=True)
class _Parts:
    """The columns of a state: where they are read, and their values in the next iteration.

    Attributes:
        reads: values of the body that are one part, with its index.
        readers: the nodes that compute them, and those that compute the state's next value.
        results: the next value of each part.
        condition, is_kept: with a condition, a part stays what it is where the condition is `is_kept`.
    """

    widths: Sequence[int]
    reads: Sequence[tuple[ir.Value, int]]
    readers: Sequence[ir.Node]
    results: Sequence[ir.Value]
    condition: ir.Value | None
    is_kept: bool


def _parts(node: ir.Node, index: int) -> _Parts | None:
    """The parts of a state that each iteration concatenates and reads separately; None for other states."""
    body = node.attributes["body"].as_graph()
    state, result = body.inputs[2 + index], skip_nodes(body.outputs[1 + index])
    condition, is_kept, nodes = None, False, []
    if state in body.outputs:
        return None
    where = produced_by(result, "Where")
    if where is not None and (result.uses() or list(body.outputs).count(result) != 1):
        return None
    if where is not None:
        condition, first, second = where.inputs
        is_kept = skip_nodes(first) is state
        result = skip_nodes(second if is_kept else first)
        if skip_nodes(first if is_kept else second) is not state or not _is_for_rows(condition):
            return None
        nodes.append(where)
    concat = produced_by(result, "Concat")
    if concat is None or concat.graph is not body or concat.attributes["axis"].as_int() not in (1, -1):
        return None
    shapes = [v.shape for v in concat.inputs if v is not None]
    widths = [s[1] for s in shapes if s is not None and len(s) == 2 and isinstance(s[1], int)]
    if len(widths) != len(concat.inputs):
        return None
    ends = list(accumulate(widths))
    bounds = {(end - width, end): i for i, (width, end) in enumerate(zip(widths, ends, strict=True))}
    reads = []
    for reader in dict.fromkeys(use.node for use in state.uses()):
        if reader is where:
            continue
        if reader.op_type not in ("Split", "Slice") or reader.domain or reader.graph is not body:
            return None
        for value in reader.outputs:
            part = columns(reader, value)
            key = None if part is None else part.indices(ends[-1])[:2]
            if key not in bounds or value in body.outputs:
                return None
            reads.append((value, bounds[key]))
        nodes.append(reader)
    if not reads:
        return None
    results = [v for v in concat.inputs if v is not None]
    return _Parts(widths, reads, nodes, results, condition, is_kept)


def _is_for_rows(condition: ir.Value | None) -> bool:
    """Whether a condition is the same for all columns of a row."""
    shape = condition.shape if condition is not None else None
    return shape is not None and (not len(shape) or (len(shape) == 2 and shape[1] == 1))


def _write(op: Builder, node: ir.Node, found: dict[int, _Parts], root: ir.Graph) -> None:
    body, graph = node.attributes["body"].as_graph(), node.graph
    assert graph is not None
    count, shapes = len(node.inputs) - 2, [v.shape for v in body.inputs[2:]]
    initial = [part for i, v in enumerate(node.inputs[2:]) for part in (_split(op, v, found[i].widths) if i in found else [v])]

    def step(iteration: ir.Value, condition: ir.Value, *states: ir.Value) -> tuple[ir.Value, ...]:
        own = _grouped(states, count, found)
        for i, values in enumerate(own):
            shape = shapes[i]
            for k, value in enumerate(values):
                value.shape = ir.Shape([shape[0], found[i].widths[k]]) if shape is not None and i in found else shape
        for i, parts in found.items():
            for value, k in parts.reads:
                value.replace_all_uses_with(own[i][k])
            body.outputs[1 + i] = body.inputs[1]
            body.remove(parts.readers, safe=True)
        results = op.inline(body, [iteration, condition, *(values[0] for values in own)])
        following: list[ir.Value] = [results[0]]
        for i, value in enumerate(results[1:]):
            following += _next(op, found[i], own[i]) if i in found else [value]
        return tuple(following)

    outputs = len(initial) + len(node.outputs) - count
    made = op.Loop(*node.inputs[:2], *initial, body=step, outputs=outputs)
    grouped = _grouped(made, count, found)
    used = [is_used(v) for v in node.outputs]
    joined = [(op.Concat(*g, axis=1) if used[i] else None) if i in found else g[0] for i, g in enumerate(grouped)]
    op.name_rest(node.name or "Loop")
    replace(node, op.take(), [*joined, *made[len(initial) :]], op, root)


def _split(op: Builder, value: ir.Value | None, widths: Sequence[int]) -> list[ir.Value]:
    if is_zero(value) and value is not None and value.dtype is not None:  # zeros stay recognizable
        rows = op.Shape(value, start=0, end=1)
        zero = np.zeros((), value.dtype.numpy())
        return [op.Expand(zero, op.Concat(rows, np.array([w], np.int64), axis=0)) for w in widths]
    return list(op.Split(value, np.array(widths, np.int64), axis=1, outputs=len(widths)))


def _next(op: Builder, parts: _Parts, own: Sequence[ir.Value]) -> list[ir.Value]:
    """The parts in the next iteration."""
    if parts.condition is None:
        return list(parts.results)
    pairs = zip(own, parts.results, strict=True)
    return [op.Where(parts.condition, *((old, new) if parts.is_kept else (new, old))) for old, new in pairs]


def _grouped(values: Sequence[ir.Value], count: int, found: dict[int, _Parts]) -> list[list[ir.Value]]:
    """The values of the loop's states, those of the parts of one state together."""
    left = iter(values)
    return [[next(left) for _ in range(len(found[i].widths) if i in found else 1)] for i in range(count)]
