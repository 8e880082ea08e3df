"""Recognizes loops over a sequence whose body is an LSTM, GRU or RNN cell, and replaces them by these operators.

The body is read as formulas: a gate is an activation of products of the input and the state with constant matrices, which may
be concatenated or split. A loop is replaced only if its formulas are those of the operator. Steps that a mask skips are read by
`sequence_masks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import replace
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.passes.recurrent.affine_forms import AffineForms, Product
from onnxbridge.hub.passes.recurrent.gate_activations import Activation, activation_of, attributes
from onnxbridge.hub.passes.recurrent.sequence_masks import FrontSteps, Mask, front_steps, masked
from onnxbridge.hub.passes.symbolic_sizes import count, extent
from onnxbridge.hub.passes.value_queries import NUMBER, is_number, is_used, is_zero, produced_by, skip_nodes

Array = np.ndarray[Any, Any]


def recognize_rnn(model: ir.Model) -> None:
    """Replace recurrent loops of a model by LSTM, GRU and RNN, in place."""
    weights: _Weights | None = None
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Loop" and not node.domain and node.graph is not None:
            found = _SequenceLoop(node).cell()
            if found is not None:
                weights = weights or _Weights(model)
                found.write(weights)
    if weights is not None:
        weights.name()


class _Weights:
    """The weights in the layout of the operators, each created once."""

    def __init__(self, model: ir.Model) -> None:
        self.op, self.root = Builder(names=names_in(model)), model.graph
        self.gone: set[int] = set()
        self._made: dict[tuple[Any, ...], tuple[ir.Value, list[ir.Value]]] = {}

    def put(self, array: Array, sources: Sequence[ir.Value], form: str) -> ir.Value:
        whole = list(dict.fromkeys(sources))
        key = (form, array.shape, *map(id, sources))
        if key not in self._made or not np.array_equal(self._made[key][0].const_value.numpy(), array):  # type: ignore[union-attr]
            self._made[key] = self.op.constant(np.ascontiguousarray(array), str(whole[0].name)), whole
        return self._made[key][0]

    def name(self) -> None:
        """Give a weight the name of its source, if it has a single one that is no longer used."""
        for results, sources in self._made.values():
            source = sources[0]
            alone = len(sources) == 1 and not source.is_graph_output() and source.producer() is None
            if alone and source.name and all(id(use.node.graph) in self.gone for use in source.uses()):
                name, graph = source.name, source.graph
                if isinstance(graph, ir.Graph):
                    graph.initializers.pop(name, None)
                source.name, results.name = None, name


@dataclass(frozen=True)
class Gate:
    """A gate: an activation of input times `W` plus state times `R`, with their biases."""

    W: Product
    R: Product
    activation: Activation


@dataclass(frozen=True)
class Row:
    """What a step adds to an output of the loop: `value` where the mask counts it, otherwise `skipped`, or, if that is None, the
    value of the last step that counts, and `before` if there is none."""

    value: ir.Value
    skipped: ir.Value | Array | None = None
    before: ir.Value | None = None


class _SequenceLoop:
    """A loop over the elements of a sequence."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.body = node, node.attributes["body"].as_graph()
        self.states = list(self.body.inputs[2:])
        self.initial = [v for v in node.inputs[2:] if v is not None]
        self.sums = AffineForms(self.body)
        results = [skip_nodes(v) for v in self.body.outputs[1:]]
        parts = [masked(v, self.body) for v in results]
        self.mask: Mask | None = next((p.mask for p in parts if p is not None), None)
        self.results = [self._stepped(i, v, parts[i]) for i, v in enumerate(results[: len(self.states)])]
        self.unused = [i for i, v in enumerate(self.states) if not v.uses() and not is_used(node.outputs[i])]
        self.copies = [i for i in range(len(self.states)) if self._is_copy(i)]
        self.rows = [self._row(v, results) for v in results[len(self.states) :]]

    def _stepped(self, index: int, result: Any, part: Any) -> Any:
        """The new value of a state in steps that count; None if it changes in others, too."""
        if self.mask is None:
            return result
        kept = part is not None and part.mask == self.mask and skip_nodes(part.old) is self.states[index]
        return skip_nodes(part.new) if kept else None

    def _is_copy(self, index: int) -> bool:
        """Whether a state only repeats the last result of steps that count."""
        uses = [use.node for use in self.states[index].uses()]
        return self.mask is not None and bool(uses) and all(node.op_type == "Where" for node in uses)

    def _row(self, value: Any, results: list[Any]) -> Row | None:
        if self.mask is None:
            return Row(value)
        if value in results[: len(self.states)] and (new := self.results[i := results.index(value)]) is not None:
            return Row(new, before=None if is_zero(self.initial[i]) else self.initial[i])
        part = masked(value, self.body)
        if part is None or part.mask != self.mask:
            return None
        if is_zero(part.old) and value.dtype is not None:
            return Row(skip_nodes(part.new), np.zeros((), value.dtype.numpy()))
        return Row(skip_nodes(part.new), part.old) if self._is_outside(part.old) else None

    def _is_outside(self, value: ir.Value) -> bool:
        """Whether a value is not computed by the loop's body."""
        node = value.producer()
        return value not in self.body.inputs if node is None else node.graph is not self.body

    def cell(self) -> _Cell | None:
        first = self.node.inputs[1]
        always_true = first is None or is_number(first, 1)
        condition = skip_nodes(self.body.outputs[0])
        unchanged = condition is self.body.inputs[1] or is_number(condition, 1)
        if self.node.inputs[0] is None or not always_true or not unchanged or None in self.rows:
            return None
        states = [i for i in range(len(self.states)) if i not in self.copies and i not in self.unused]
        if any(self.results[i] is None for i in (*states, *self.copies)):
            return None
        for h in states:
            outputs = [self.results[i] for i in self.copies] + [row.value for row in self.rows if row is not None]
            if len(states) > 2 or any(value is not self.results[h] for value in outputs):
                continue
            found = self._lstm(h, sum(states) - h) if len(states) == 2 else self._gru(h) or self._rnn(h)
            if found is not None and self._matches_shapes(found):
                return found
        return None

    def _matches_shapes(self, cell: _Cell) -> bool:
        """Whether the loop iterates over the whole sequence, and its states have the batch size of the sequence."""
        shape = cell.sequence.shape
        if shape is None or len(shape) != 3 or count(self.node.inputs[0]) != extent(cell.sequence, 0):
            return False
        batch = extent(cell.sequence, 1)
        return all(len(v.shape or ()) == 2 and (is_zero(v) or extent(v, 0) == batch) for v in self.initial)

    def _sequence(self, step: ir.Value) -> ir.Value | None:
        """The sequence of which a value is the element of the current iteration."""
        node = step.producer()
        if node is None or node.op_type != "Gather" or node.graph is not self.body or _int(node, "axis", 0):
            return None
        data, index = node.inputs
        inside = data is None or (data.producer().graph is self.body if data.producer() is not None else data in self.body.inputs)  # type: ignore[union-attr]
        return data if not inside and skip_nodes(index, NUMBER) is self.body.inputs[0] else None

    def _gate(self, value: ir.Value | None, h: ir.Value) -> Gate | None:
        activation, products = self.sums.activated(value)
        if len(products) != 2 or any(p.matrix is None for p in products):
            return None
        step, state = (p for p in sorted(products, key=lambda p: p.source is h))
        known = state.source is h and step.source is not h and self._sequence(step.source) is not None
        return Gate(step, state, activation) if known else None

    def _lstm(self, h: int, c: int) -> _Cell | None:
        """c' = f c + i g, h' = o tanh(c'); other activations than tanh likewise."""
        state, cell = self.states[h], self.states[c]
        for o, output in _factors(self.results[h]):
            activated = activation_of(output)
            if activated is None or skip_nodes(activated[1]) is not self.results[c]:
                continue
            for old_term, new in _terms(self.results[c]):
                for f, old in _factors(old_term):
                    if skip_nodes(old) is not cell:
                        continue
                    for i, g in _factors(new):
                        gates = _all([self._gate(v, state) for v in (i, o, f, g)])
                        if gates is None or not gates[0].activation == gates[1].activation == gates[2].activation:
                            continue
                        used = (gates[0].activation, gates[3].activation, activated[0])
                        functions = attributes(used, ("Sigmoid", "Tanh", "Tanh"))
                        return _Cell(self, "LSTM", (h, c), gates, self._common_sequence(gates), functions)
        return None

    def _gru(self, h: int) -> _Cell | None:
        """h' = z h + (1 - z) n, where n uses the state multiplied by r."""
        state, result = self.states[h], self.results[h]
        for old_term, new in _terms(result):
            for z, old in _factors(old_term):
                for rest, n in _factors(new):
                    other = produced_by(rest, "Sub")
                    if skip_nodes(old) is not state or other is None or not is_number(other.inputs[0], 1):
                        continue
                    if skip_nodes(other.inputs[1]) is skip_nodes(z) and (found := self._gru_from_gates(h, z, n)) is not None:
                        return found
        for n, update in _terms(result):  # the same with a single product: n + z (h - n)
            for z, difference in _factors(update):
                subtract = produced_by(difference, "Sub")
                operands = [skip_nodes(v) for v in subtract.inputs] if subtract is not None else []
                if operands == [state, skip_nodes(n)] and (found := self._gru_from_gates(h, z, n)) is not None:
                    return found
        return None

    def _gru_from_gates(self, h: int, z: ir.Value, n: ir.Value) -> _Cell | None:
        state, activated = self.states[h], activation_of(n)
        update = self._gate(z, state)
        parts = self.sums.of(activated[1]) if activated is not None else ()
        if update is None or activated is None or len(parts) != 2:
            return None
        for step, reset in (parts, parts[::-1]):
            if step.source is not update.W.source or step.matrix is None:
                continue
            for r, projected in _factors(reset.source):
                gate = self._gate(r, state)
                inner = self.sums.of(projected)
                if gate is None or len(inner) != 1 or inner[0].source is not state or gate.activation != update.activation:
                    continue
                if reset.matrix is None and inner[0].matrix is not None:  # r (h R + b)
                    new, after = Gate(step.plus(reset.bias), inner[0], activated[0]), 1
                elif reset.matrix is not None and inner[0].matrix is None and inner[0].bias is None:  # (r h) R
                    new, after = Gate(step, reset, activated[0]), 0
                else:
                    continue
                gates = [update, gate, new]
                functions = attributes((update.activation, new.activation), ("Sigmoid", "Tanh"))
                more = {"linear_before_reset": after, **functions}
                return _Cell(self, "GRU", (h,), gates, self._common_sequence(gates), more)
        return None

    def _rnn(self, h: int) -> _Cell | None:
        gate = self._gate(self.results[h], self.states[h])
        if gate is None:
            return None
        return _Cell(self, "RNN", (h,), [gate], self._common_sequence([gate]), attributes([gate.activation], ("Tanh",)))

    def _common_sequence(self, gates: Sequence[Gate]) -> ir.Value | None:
        """The input sequence of all gates."""
        sources = {g.W.source for g in gates}
        return self._sequence(sources.pop()) if len(sources) == 1 else None


@dataclass(frozen=True)
class _Cell:
    """A recurrent operator equivalent to a loop; `order` has the index of the loop's state for each state of the operator."""

    steps: _SequenceLoop
    op_type: str
    order: tuple[int, ...]
    gates: Sequence[Gate]
    sequence: Any
    attrs: dict[str, Any]

    def write(self, store: _Weights) -> None:
        node, body, op = self.steps.node, self.steps.body, store.op
        graph, hidden = node.graph, int(self.gates[0].R.matrix.shape[1])  # type: ignore[union-attr]  # a gate has matrices
        assert graph is not None
        W, R = (np.concatenate([getattr(g, side).matrix.T for g in self.gates])[None] for side in "WR")
        B = np.concatenate([getattr(g, side).offset(hidden, W.dtype) for side in "WR" for g in self.gates])[None]
        store.gone |= {id(g) for g in (body, *body.subgraphs())}
        weights = [store.put(array, [getattr(g, side).of for g in self.gates], side) for array, side in ((W, "W"), (R, "R"))]
        biases = [v for g in self.gates for p in (g.W, g.R) for v in p.biases]
        bias = store.put(B, biases, "B") if biases else None
        initial = [None if is_zero(self.steps.initial[i]) else self.steps.initial[i] for i in self.order]
        front = FrontSteps() if self.steps.mask is None else front_steps(op, self.steps.mask, self.sequence)
        results = getattr(op, self.op_type)(
            front.sequence(op, self.sequence), *weights, bias, front.lengths, *(v and op.Unsqueeze(v, [0]) for v in initial),
            hidden_size=hidden, outputs=1 + len(self.order), **self.attrs,
        )  # fmt: skip
        found: dict[int, ir.Value] = {}
        last = dict(zip(self.order, zip(results[1:], initial, strict=True), strict=True))
        for i in self.steps.copies:
            last[i] = results[1], None if is_zero(self.steps.initial[i]) else self.steps.initial[i]
        for i, (state, before) in last.items():
            if is_used(node.outputs[i]):
                found[i] = front.last(op, op.Squeeze(state, [0]), before)
        for i, row in enumerate(self.steps.rows, len(self.steps.states)):
            if is_used(node.outputs[i]) and row is not None:
                found[i] = front.outputs(op, op.Squeeze(results[0], [1]), row.skipped, row.before)
        op.name_rest(node.name or self.op_type)
        replace(node, op.take(), [found.get(i) for i in range(len(node.outputs))], op, store.root)


def _all(gates: Sequence[Gate | None]) -> list[Gate] | None:
    return None if None in gates else [g for g in gates if g is not None]


def _pairs(value: ir.Value | None, op_type: str) -> Iterator[tuple[Any, Any]]:
    node = produced_by(value, op_type)
    if node is not None:
        a, b = node.inputs
        yield from ((a, b), (b, a))


def _factors(value: ir.Value | None) -> Iterator[tuple[Any, Any]]:
    return _pairs(value, "Mul")


def _terms(value: ir.Value | None) -> Iterator[tuple[Any, Any]]:
    return _pairs(value, "Add")


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None else default
