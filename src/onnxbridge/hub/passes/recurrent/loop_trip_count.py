"""Loops that only count: how often they turn is told before the first turn, and the lists that they fill are what they collect.

A frontend whose source has nothing but `while` writes a loop on a condition, with a counter and a list among its states. A
counter that is compared with a number that does not change makes the number of turns known. A list into which every turn writes
its own row is, when all rows are written, what an ONNX loop collects, whatever was in it before.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.replacement import replace
from onnxbridge.hub.passes.match import NUMBER, behind, is_number, is_taken, made_by
from onnxbridge.hub.passes.symbolic_sizes import count, extent

_COMPARED = {"Less": (0, 1, 0), "LessOrEqual": (0, 1, 1), "Greater": (1, 0, 0), "GreaterOrEqual": (1, 0, 1)}
"""Where a comparison has what counts and what limits it, and how many turns more there are where both may be equal."""


def count_loops(model: ir.Model) -> None:
    """Count what can be counted among the model's loops, and collect what they list, in place."""
    names: set[str] = set()
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Loop" and not node.domain and len(node.outputs) == len(node.inputs) - 2:
            loop = _Loop(node)
            if loop.limits or loop.lists:
                names = names or names_in(model)
                loop.write(Builder(names=names))


@dataclass(frozen=True)
class _Counter:
    """A state that is `start` at first and one more after each turn."""

    start: int
    after: ir.Value


@dataclass(frozen=True)
class _Limit:
    """What a comparison in the loop's condition says: there are as many turns as this value, and `more`."""

    value: ir.Value
    more: int


class _Loop:
    """What a loop is made of."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.body = node, node.attributes["body"].as_graph()
        self.states, self.results = list(self.body.inputs[2:]), [behind(v) for v in self.body.outputs[1:]]
        self.initial = list(node.inputs[2:])
        self.counters = dict(self._counters())
        self.owners = {id(g): n for n in self.body.all_nodes() for g in _graphs_in(n)}
        conditions = [value for value in _conjuncts(self.body.outputs[0]) if value is not self.body.inputs[1]]
        starts = {c.after: c.start for c in self.counters.values()}
        asked = list(_conjuncts(node.inputs[1])) if node.inputs[1] is not None and not is_number(node.inputs[1], True) else []
        first = {_comparison(value, starts) for value in asked}
        found = {value: k for value in conditions if (k := self._limit(value, first, starts)) is not None}
        self.rest = [value for value in conditions if value not in found]
        self.limits = list({(count(k.value), k.more): k for k in found.values()}.values())
        self.only_counts = not self.rest and first <= {_comparison(value, starts) for value in found}
        told = [(k.value, k.more) for k in self.limits] + [(v, 0) for v in node.inputs[:1] if v is not None]
        self.turns: Hashable = count(told[0][0]) if len(told) == 1 and not told[0][1] else None
        self.lists = {i: row for i in range(len(self.states)) if (row := self._row(i)) is not None} if self.only_counts else {}

    def _counters(self) -> Iterator[tuple[int, _Counter]]:
        for i, (state, result, first) in enumerate(zip(self.states, self.results, self.initial, strict=True)):
            start, node = static(first), result.producer()
            if start is None or start.size != 1 or start.dtype.kind != "i" or node is None or node.op_type != "Add":
                continue
            if any(behind(a) is state and is_number(b, 1) for a, b in (node.inputs, node.inputs[::-1])):
                yield i, _Counter(int(start.reshape(-1)[0]), result)

    def _limit(self, condition: ir.Value, first: set[Hashable], starts: dict[ir.Value, int]) -> _Limit | None:
        """What a condition says of the turns: one that holds, or is asked, before the first turn as well."""
        node = condition.producer()
        if node is None or node.domain or node.op_type not in _COMPARED:
            return None
        small, large, equal = _COMPARED[node.op_type]
        counts, limit = behind(node.inputs[small]), node.inputs[large]
        if counts not in starts or limit is None or self._is_inside(limit):
            return None
        made, known = _Limit(limit, equal - starts[counts]), count(limit)
        holds = isinstance(known, int) and known + made.more > 0
        return made if holds or _comparison(condition, starts) in first else None

    def _is_inside(self, value: ir.Value) -> bool:
        node = value.producer()
        return value in self.body.inputs if node is None else node.graph is self.body

    def _row(self, index: int) -> tuple[ir.Value, bool] | None:
        """What each turn writes into this state, and whether that is always its only row; None where it is no such list."""
        state, first, node = self.states[index], self.initial[index], self.results[index].producer()
        if first is None or node is None or node.op_type != "ScatterND" or node.domain or "reduction" in node.attributes:
            return None
        base, at, rows = node.inputs
        write = rows.producer() if rows is not None else None
        if write is None or write.op_type != "Unsqueeze" or not is_number(write.inputs[1], 0):
            return None
        if not self._only_fills(state, base, node):
            return None
        row = behind(write.inputs[0])
        if is_number(at, 0):  # of no turn the source has no rows to give where their sizes are not known
            filled = extent(first, 0) == 1 and (isinstance(self.turns, int) and self.turns > 0 or 0 in (first.shape or ()))
            return (row, True) if filled else None
        place = behind(at, NUMBER)
        counts = place is self.body.inputs[0] or any(place is self.states[i] and not c.start for i, c in self.counters.items())
        return (row, False) if counts and self.turns is not None and extent(first, 0) == self.turns else None

    def _only_fills(self, state: ir.Value, base: ir.Value | None, write: ir.Node) -> bool:
        """Whether a list is read for nothing but to be written into, as it is or, where it has no data yet, made anew."""
        base = behind(base)
        if base is state:
            return all(use.node is write or _passes(use.node, base) for use in state.uses())
        node = made_by(base, "If")
        empty = made_by(node.inputs[0], "Equal") if node is not None else None
        size = made_by(empty.inputs[0], "Size") if empty is not None else None
        if node is None or empty is None or size is None or size.inputs[0] is not state:
            return False
        kept = behind(node.attributes["else_branch"].as_graph().outputs[0]) is state
        read = all(self._is_for(use.node, node) for use in state.uses())
        return kept and read and is_number(empty.inputs[1], 0) and all(use.node is write for use in base.uses())

    def _is_for(self, node: ir.Node, end: ir.Node) -> bool:
        """Whether whatever a node computes is for this other node only."""
        while node.graph is not end.graph and id(node.graph) in self.owners:
            node = self.owners[id(node.graph)]
        return node is end or all(
            not o.is_graph_output() and all(self._is_for(use.node, end) for use in o.uses()) for o in node.outputs
        )

    def write(self, op: Builder) -> None:
        """Put a loop in its place that is told its turns."""
        node, graph = self.node, self.node.graph
        assert graph is not None
        turns = [self._turns(op, limit) for limit in self.limits] + [v for v in node.inputs[:1] if v is not None]
        limit = turns[0] if len(turns) == 1 else op.Min(*turns)
        gone = {i for i in self.counters if not is_taken(node.outputs[i])} | set(self.lists)
        kept = [i for i in range(len(self.states)) if i not in gone]
        same = {i: self.results.index(row) for i, (row, last) in self.lists.items() if last and row in self.results}
        same = {i: j for i, j in same.items() if j in kept}
        scanned = [i for i in self.lists if i not in same]

        def turn(iteration: ir.Value, condition: ir.Value, *states: ir.Value) -> tuple[ir.Value, ...]:
            own = dict(zip(kept, states, strict=True))
            for i, state in own.items():
                state.shape = self.states[i].shape
            for i in gone:
                own[i] = self._counted(op, i, iteration) if i in self.counters else self.initial[i]  # type: ignore[assignment]
            given = [iteration, condition, *(own[i] for i in range(len(self.states)))]
            outer = dict(zip(self.body.inputs, given, strict=True))
            rows, asks = ([outer.get(v, v) for v in values] for values in ([self.lists[i][0] for i in scanned], self.rest))
            results = op.inline(self.body, given)
            for other in asks[1:]:
                asks[0] = op.And(asks[0], other)
            return (asks[0] if asks else condition, *(results[1 + i] for i in kept), *rows)

        count_ = len(kept) + len(scanned)
        first = node.inputs[1] if not self.only_counts else None if kept else np.array(True)  # a Loop has two inputs at least
        made = op.Loop(limit, first, *(self.initial[i] for i in kept), body=turn, outputs=count_) if count_ else ()
        made = made if isinstance(made, tuple) else (made,)
        found = dict(zip((*kept, *scanned), made, strict=True))
        for i in scanned:
            if isinstance(self.turns, (int, str)) and found[i].shape is not None:
                found[i].shape = ir.Shape([self.turns, *found[i].shape[1:]])
            if self.lists[i][1]:
                found[i] = op.Gather(found[i], np.array([-1]))
        found |= {i: op.Unsqueeze(found[j], [0]) for i, j in same.items()}
        self._put(op, graph, found)

    def _turns(self, op: Builder, limit: _Limit) -> ir.Value:
        turns = limit.value if limit.value.dtype == ir.DataType.INT64 else op.Cast(limit.value, to=ir.DataType.INT64)
        if turns.shape is None or len(turns.shape):
            turns = op.Reshape(turns, np.array([], np.int64))
        return op.Add(turns, np.int64(limit.more)) if limit.more else turns

    def _counted(self, op: Builder, index: int, iteration: ir.Value) -> ir.Value:
        state, start = self.states[index], self.counters[index].start
        made = op.Add(iteration, np.int64(start)) if start else iteration
        made = made if state.dtype == ir.DataType.INT64 else op.Cast(made, to=state.dtype)
        return op.Reshape(made, np.ones(len(state.shape), np.int64)) if state.shape is not None and len(state.shape) else made

    def _put(self, op: Builder, graph: ir.Graph, found: dict[int, ir.Value]) -> None:
        node = self.node
        op.name_rest(node.name or "loop")
        replace(node, op.take(), [found.get(i) for i in range(len(node.outputs))], op, graph)


def _graphs_in(node: ir.Node) -> list[ir.Graph]:
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def _conjuncts(value: ir.Value) -> Iterator[ir.Value]:
    """What must hold for a condition to hold."""
    value = behind(value)
    node = value.producer()
    if node is not None and node.op_type == "And" and not node.domain:
        for part in node.inputs:
            yield from _conjuncts(part)  # type: ignore[arg-type]  # And has no optional inputs
    else:
        yield value


def _comparison(condition: ir.Value, starts: dict[ir.Value, int]) -> Hashable:
    """What a condition compares, with the counters at their starts."""
    node = condition.producer()
    if node is None:
        return condition
    sides = [behind(v) for v in node.inputs]
    return (node.op_type, *(starts[v] if v in starts else count(v) for v in sides))


def _passes(node: ir.Node, value: ir.Value | None) -> bool:
    return node.op_type == "Identity" and behind(node.outputs[0]) is value
