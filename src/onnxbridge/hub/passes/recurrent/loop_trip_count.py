"""Infers trip counts of loops, and turns arrays written row by row into scan outputs.

A frontend whose source has only `while` writes a loop on a condition, with a counter and arrays among its states. A counter
compared with a loop-invariant limit gives the trip count. An array in which every iteration writes its own row is a scan
output, whatever its initial contents.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.passes.recurrent.sequence_masks import masked
from onnxbridge.hub.passes.symbolic_sizes import count, extent
from onnxbridge.hub.passes.value_queries import NUMBER, is_number, is_used, is_zero, produced_by, skip_nodes

_COMPARED = {"Less": (0, 1, 0), "LessOrEqual": (0, 1, 1), "Greater": (1, 0, 0), "GreaterOrEqual": (1, 0, 1)}
"""Comparison -> (index of the counter input, index of the limit input, extra iterations if equality is allowed)."""


def infer_trip_counts(model: ir.Model) -> None:
    """Infer trip counts and scan outputs of the model's loops, in place."""
    names: set[str] = set()
    for node in list(model.graph.all_nodes()):
        if node.op_type != "Loop" or node.domain or len(node.outputs) != len(node.inputs) - 2:
            continue
        if len(node.attributes["body"].as_graph().outputs) == len(node.outputs) + 1:  # no scan outputs, used or not
            loop = _Loop(node)
            if loop.limits or loop.arrays:
                names = names or names_in(model)
                loop.write(Builder(names=names))


@dataclass(frozen=True)
class _Counter:
    """A state that starts at `start` and is incremented by one in each iteration; `after` is its new value."""

    start: int
    after: ir.Value


@dataclass(frozen=True)
class _Limit:
    """A limit from the loop's condition: the number of iterations is `value + more`."""

    value: ir.Value
    more: int


class _Loop:
    """The parts of a loop: states, counters, limits and arrays that are written row by row."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.body = node, node.attributes["body"].as_graph()
        self.states, self.results = list(self.body.inputs[2:]), [skip_nodes(v) for v in self.body.outputs[1:]]
        self.initial = list(node.inputs[2:])
        self.counters = dict(self._counters())
        self.owners = {id(g): n for n in self.body.all_nodes() for g in _graphs_in(n)}
        conditions = [value for value in _conjuncts(self.body.outputs[0]) if value is not self.body.inputs[1]]
        starts = {c.after: c.start for c in self.counters.values()}
        given = _conjuncts(node.inputs[1]) if node.inputs[1] is not None else ()
        initial_conditions = [value for value in given if not is_number(value, True)]
        first = {_comparison(value, starts) for value in initial_conditions}
        found = {value: k for value in conditions if (k := self._limit(value, first, starts)) is not None}
        self.other_conditions = [value for value in conditions if value not in found]
        limits = [self._with_skipped_iterations(k) for k in found.values()]
        self.limits = list({(count(k.value), k.more): k for k in limits}.values())
        self.only_counts = not self.other_conditions and first <= {_comparison(value, starts) for value in found}
        counts = [(k.value, k.more) for k in self.limits] + [(v, 0) for v in node.inputs[:1] if v is not None]
        self.trip_count: Hashable = count(counts[0][0]) if len(counts) == 1 and not counts[0][1] else None
        self.arrays = (
            {i: row for i in range(len(self.states)) if (row := self._written_row(i)) is not None} if self.only_counts else {}
        )

    def _counters(self) -> Iterator[tuple[int, _Counter]]:
        for i, (state, result, first) in enumerate(zip(self.states, self.results, self.initial, strict=True)):
            start, node = constant_array(first), result.producer()
            if start is None or start.size != 1 or start.dtype.kind != "i" or node is None or node.op_type != "Add":
                continue
            if any(skip_nodes(a) is state and is_number(b, 1) for a, b in (node.inputs, node.inputs[::-1])):
                yield i, _Counter(int(start.reshape(-1)[0]), result)

    def _limit(self, condition: ir.Value, first: set[Hashable], starts: dict[ir.Value, int]) -> _Limit | None:
        """The limit that a condition implies, if it is known to hold or is checked before the first iteration as well."""
        node = condition.producer()
        if node is None or node.domain or node.op_type not in _COMPARED:
            return None
        small, large, equal = _COMPARED[node.op_type]
        counts, limit = skip_nodes(node.inputs[small]), node.inputs[large]
        if counts not in starts or limit is None or self._is_inside(limit):
            return None
        found, known = _Limit(limit, equal - starts[counts]), count(limit)
        holds = isinstance(known, int) and known + found.more > 0
        return found if holds or _comparison(condition, starts) in first else None

    def _with_skipped_iterations(self, limit: _Limit) -> _Limit:
        """The limit without a bound by the lengths of the sequences, after which an iteration changes nothing.

        The loops of `tf.compat.v1.nn.dynamic_rnn` end after the longest sequence, at min(steps, max(1, longest)).
        """
        node = produced_by(limit.value, "Min")
        if node is None or self.other_conditions or len(node.inputs) != 2:
            return limit
        for steps, bound in (tuple(node.inputs), tuple(node.inputs)[::-1]):
            longest = next((n for v in _operands(bound, "Max") if (n := produced_by(v, "ReduceMax")) is not None), None)
            if steps is not None and longest is not None and self._changes_nothing_after(skip_nodes(longest.inputs[0])):
                return _Limit(steps, limit.more)
        return limit

    def _changes_nothing_after(self, lengths: ir.Value) -> bool:
        """Whether no iteration changes a state of a sequence, or writes more than zeros, after the sequence's end."""
        times = [self.states[i] for i, c in self.counters.items() if not c.start]

        def skipped(value: ir.Value) -> ir.Value | None:
            part = masked(value, self.body, times)
            return skip_nodes(part.old) if part is not None and part.mask.lengths is lengths else None

        for i, (state, result) in enumerate(zip(self.states, self.results, strict=True)):
            if i in self.counters:
                unchanged = not is_used(self.node.outputs[i])
            elif (row := self._row(i)) is not None:
                unchanged = is_zero(self.initial[i]) and is_zero(skipped(row) or row)
            else:
                unchanged = result is state or skipped(result) is state
            if not unchanged:
                return False
        return True

    def _is_inside(self, value: ir.Value) -> bool:
        node = value.producer()
        return value in self.body.inputs if node is None else node.graph is self.body

    def _written_row(self, index: int) -> tuple[ir.Value, bool] | None:
        """The row that each iteration writes into this state, and whether it is always row 0; None if it is no such array."""
        first, row = self.initial[index], self._row(index)
        if first is None or row is None:
            return None
        indices = self.results[index].producer().inputs[1]  # a ScatterND writes a row
        if is_number(indices, 0):  # without any iteration there would be no row
            filled = extent(first, 0) == 1 and (
                isinstance(self.trip_count, int) and self.trip_count > 0 or 0 in (first.shape or ())
            )
            return (row, True) if filled else None
        index_value = skip_nodes(indices, NUMBER)
        counts = index_value is self.body.inputs[0] or any(
            index_value is self.states[i] and not c.start for i, c in self.counters.items()
        )
        return (row, False) if counts and self.trip_count is not None and extent(first, 0) == self.trip_count else None

    def _row(self, index: int) -> ir.Value | None:
        """What each iteration writes into one row of this state; None if it is no array that is only written to."""
        node = self.results[index].producer()
        if node is None or node.op_type != "ScatterND" or node.domain or "reduction" in node.attributes:
            return None
        base, _, rows = node.inputs
        write = rows.producer() if rows is not None else None
        if write is None or write.op_type != "Unsqueeze" or not is_number(write.inputs[1], 0):
            return None
        return skip_nodes(write.inputs[0]) if self._only_fills(self.states[index], base, node) else None

    def _only_fills(self, state: ir.Value, base: ir.Value | None, write: ir.Node) -> bool:
        """Whether an array state is only used to be written to, directly or after being allocated if it is empty."""
        base = skip_nodes(base)
        if base is state:
            return all(use.node is write or _is_identity_of(use.node, base) for use in state.uses())
        node = produced_by(base, "If")
        empty = produced_by(node.inputs[0], "Equal") if node is not None else None
        size = produced_by(empty.inputs[0], "Size") if empty is not None else None
        if node is None or empty is None or size is None or size.inputs[0] is not state:
            return False
        kept = skip_nodes(node.attributes["else_branch"].as_graph().outputs[0]) is state
        read = all(self._is_only_for(use.node, node) for use in state.uses())
        return kept and read and is_number(empty.inputs[1], 0) and all(use.node is write for use in base.uses())

    def _is_only_for(self, node: ir.Node, end: ir.Node) -> bool:
        """Whether all results of a node are used only by node `end`, directly or indirectly."""
        while node.graph is not end.graph and id(node.graph) in self.owners:
            node = self.owners[id(node.graph)]
        return node is end or all(
            not o.is_graph_output() and all(self._is_only_for(use.node, end) for use in o.uses()) for o in node.outputs
        )

    def write(self, op: Builder) -> None:
        """Replace the loop by one with a trip count."""
        node, graph = self.node, self.node.graph
        assert graph is not None
        trip_counts = [self._iterations(op, limit) for limit in self.limits] + [v for v in node.inputs[:1] if v is not None]
        limit = trip_counts[0] if len(trip_counts) == 1 else op.Min(*trip_counts)
        gone = {i for i in self.counters if not is_used(node.outputs[i])} | set(self.arrays)
        kept = [i for i in range(len(self.states)) if i not in gone]
        same = {i: self.results.index(row) for i, (row, last) in self.arrays.items() if last and row in self.results}
        same = {i: j for i, j in same.items() if j in kept}
        scanned = [i for i in self.arrays if i not in same]

        def step(iteration: ir.Value, condition: ir.Value, *states: ir.Value) -> tuple[ir.Value, ...]:
            own = dict(zip(kept, states, strict=True))
            for i, state in own.items():
                state.shape = self.states[i].shape
            for i in gone:
                own[i] = self._counter_value(op, i, iteration) if i in self.counters else self.initial[i]  # type: ignore[assignment]
            arguments = [iteration, condition, *(own[i] for i in range(len(self.states)))]
            outer = dict(zip(self.body.inputs, arguments, strict=True))
            rows, conditions = (
                [outer.get(v, v) for v in values] for values in ([self.arrays[i][0] for i in scanned], self.other_conditions)
            )
            results = op.inline(self.body, arguments)
            for other in conditions[1:]:
                conditions[0] = op.And(conditions[0], other)
            return (conditions[0] if conditions else condition, *(results[1 + i] for i in kept), *rows)

        count_ = len(kept) + len(scanned)
        first = node.inputs[1] if not self.only_counts else None if kept else np.array(True)  # a Loop has two inputs at least
        results = op.Loop(limit, first, *(self.initial[i] for i in kept), body=step, outputs=count_) if count_ else ()
        results = results if isinstance(results, tuple) else (results,)
        found = dict(zip((*kept, *scanned), results, strict=True))
        for i in scanned:
            if isinstance(self.trip_count, (int, str)) and found[i].shape is not None:
                found[i].shape = ir.Shape([self.trip_count, *found[i].shape[1:]])
            if self.arrays[i][1]:
                found[i] = op.Gather(found[i], np.array([-1]))
        found |= {i: op.Unsqueeze(found[j], [0]) for i, j in same.items()}
        self._replace(op, graph, found)

    def _iterations(self, op: Builder, limit: _Limit) -> ir.Value:
        iterations = limit.value if limit.value.dtype == ir.DataType.INT64 else op.Cast(limit.value, to=ir.DataType.INT64)
        if iterations.shape is None or len(iterations.shape):
            iterations = op.Reshape(iterations, np.array([], np.int64))
        return op.Add(iterations, np.int64(limit.more)) if limit.more else iterations

    def _counter_value(self, op: Builder, index: int, iteration: ir.Value) -> ir.Value:
        state, start = self.states[index], self.counters[index].start
        value = op.Add(iteration, np.int64(start)) if start else iteration
        value = value if state.dtype == ir.DataType.INT64 else op.Cast(value, to=state.dtype)
        return op.Reshape(value, np.ones(len(state.shape), np.int64)) if state.shape is not None and len(state.shape) else value

    def _replace(self, op: Builder, graph: ir.Graph, found: dict[int, ir.Value]) -> None:
        node = self.node
        op.name_rest(node.name or "loop")
        replace(node, op.take(), [found.get(i) for i in range(len(node.outputs))], op, graph)


def _graphs_in(node: ir.Node) -> list[ir.Graph]:
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def _conjuncts(value: ir.Value) -> Iterator[ir.Value]:
    """The conditions whose conjunction (And) is the given condition."""
    value = skip_nodes(value)
    node = value.producer()
    if node is not None and node.op_type == "And" and not node.domain:
        for part in node.inputs:
            yield from _conjuncts(part)  # type: ignore[arg-type]  # And has no optional inputs
    else:
        yield value


def _operands(value: ir.Value | None, op_type: str) -> list[ir.Value]:
    """The operands of the node that computes a value, if it has this operator; otherwise the value."""
    node = produced_by(value, op_type)
    return [v for v in (node.inputs if node is not None else (value,)) if v is not None]


def _comparison(condition: ir.Value, starts: dict[ir.Value, int]) -> Hashable:
    """A key of a comparison, with counters at their start values."""
    node = condition.producer()
    if node is None:
        return condition
    operands = [skip_nodes(v) for v in node.inputs]
    return (node.op_type, *(starts[v] if v in starts else count(v) for v in operands))


def _is_identity_of(node: ir.Node, value: ir.Value | None) -> bool:
    return node.op_type == "Identity" and skip_nodes(node.outputs[0]) is value
