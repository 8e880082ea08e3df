"""Loops over the steps of a sequence whose body is a cell of LSTM, GRU or RNN, as these operators.

What each turn computes is read as formulas: a gate is a function of products of the step and of the state with constant matrices,
however the source has cut these. A loop is replaced only where its formulas are those of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.fold import static
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.replacement import replace
from onnxbridge.hub.passes.match import NUMBER, behind, is_number, is_taken, made_by
from onnxbridge.hub.passes.recurrent.affine_forms import Product, Sums
from onnxbridge.hub.passes.symbolic_sizes import count, extent

Array = np.ndarray[Any, Any]


def find_cells(model: ir.Model) -> None:
    """Write the recurrent layers of a model as what they are, in place."""
    weights: _Weights | None = None
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Loop" and not node.domain and node.graph is not None:
            found = _Steps(node).cell()
            if found is not None:
                weights = weights or _Weights(model)
                found.write(weights)
    if weights is not None:
        weights.name()


class _Weights:
    """The operators' forms of weights, each made once."""

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
        """Give weights the name that they had, where they were one that nobody reads any more."""
        for made, sources in self._made.values():
            source = sources[0]
            alone = len(sources) == 1 and not source.is_graph_output() and source.producer() is None
            if alone and source.name and all(id(use.node.graph) in self.gone for use in source.uses()):
                name, graph = source.name, source.graph
                if isinstance(graph, ir.Graph):
                    graph.initializers.pop(name, None)
                source.name, made.name = None, name


@dataclass(frozen=True)
class Gate:
    """What is added up in a gate: the step times `W`, the state times `R`, and their biases."""

    W: Product
    R: Product


class _Steps:
    """A loop that takes one element of a sequence after another."""

    def __init__(self, node: ir.Node) -> None:
        self.node, self.body = node, node.attributes["body"].as_graph()
        self.states = list(self.body.inputs[2:])
        results = [behind(v) for v in self.body.outputs[1:]]
        self.results, self.rows = results[: len(self.states)], results[len(self.states) :]
        self.sums = Sums(self.body)

    def cell(self) -> _Cell | None:
        first = self.node.inputs[1]
        goes = first is None or is_number(first, 1)
        kept = behind(self.body.outputs[0])
        if self.node.inputs[0] is None or not goes or not (kept is self.body.inputs[1] or is_number(kept, 1)):
            return None
        for h in range(len(self.states)):
            if len(self.states) > 2 or any(row is not self.results[h] for row in self.rows):
                continue
            found = self._lstm(h, 1 - h) if len(self.states) == 2 else self._gru(h) or self._rnn(h)
            if found is not None and self._fits(found):
                return found
        return None

    def _fits(self, cell: _Cell) -> bool:
        """Whether the loop takes every element of the sequence, and states that are as many as its batch."""
        shape = cell.sequence.shape
        if shape is None or len(shape) != 3 or count(self.node.inputs[0]) != extent(cell.sequence, 0):
            return False
        batch, states = extent(cell.sequence, 1), [v for v in self.node.inputs[2:] if v is not None]
        return all(len(v.shape or ()) == 2 and (_is_zero(v) or extent(v, 0) == batch) for v in states)

    def _sequence(self, step: ir.Value) -> ir.Value | None:
        """The sequence of which a value is the element of this turn."""
        node = step.producer()
        if node is None or node.op_type != "Gather" or node.graph is not self.body or _int(node, "axis", 0):
            return None
        data, place = node.inputs
        inside = data is None or (data.producer().graph is self.body if data.producer() is not None else data in self.body.inputs)  # type: ignore[union-attr]
        return data if not inside and behind(place, NUMBER) is self.body.inputs[0] else None

    def _gate(self, value: ir.Value | None, function: str, h: ir.Value) -> Gate | None:
        node = made_by(value, function)
        found = self.sums.of(node.inputs[0]) if node is not None else None
        if found is None or len(found) != 2 or any(p.matrix is None for p in found):
            return None
        step, state = (p for p in sorted(found, key=lambda p: p.source is h))
        known = state.source is h and step.source is not h and self._sequence(step.source) is not None
        return Gate(step, state) if known else None

    def _lstm(self, h: int, c: int) -> _Cell | None:
        """c' = f c + i g, h' = o tanh(c')."""
        state, cell = self.states[h], self.states[c]
        for o, tanh in _factors(self.results[h]):
            squashed = made_by(tanh, "Tanh")
            if squashed is None or behind(squashed.inputs[0]) is not self.results[c]:
                continue
            for kept, new in _terms(self.results[c]):
                for f, old in _factors(kept):
                    for i, g in _factors(new):
                        if behind(old) is not cell or made_by(g, "Tanh") is None:
                            continue
                        gates = [self._gate(v, "Sigmoid", state) for v in (i, o, f)] + [self._gate(g, "Tanh", state)]
                        if (known := _all(gates)) is not None:
                            return _Cell(self, "LSTM", (h, c), known, self._of(known), {})
        return None

    def _gru(self, h: int) -> _Cell | None:
        """h' = z h + (1 - z) n, where n looks at the state through r."""
        state, result = self.states[h], self.results[h]
        for kept, new in _terms(result):
            for z, old in _factors(kept):
                for rest, n in _factors(new):
                    other = made_by(rest, "Sub")
                    if behind(old) is not state or other is None or not is_number(other.inputs[0], 1):
                        continue
                    if behind(other.inputs[1]) is behind(z) and (found := self._gated(h, z, n)) is not None:
                        return found
        for n, moved in _terms(result):  # the same written with one product: n + z (h - n)
            for z, way in _factors(moved):
                apart = made_by(way, "Sub")
                ways = [behind(v) for v in apart.inputs] if apart is not None else []
                if ways == [state, behind(n)] and (found := self._gated(h, z, n)) is not None:
                    return found
        return None

    def _gated(self, h: int, z: ir.Value, n: ir.Value) -> _Cell | None:
        state, tanh = self.states[h], made_by(n, "Tanh")
        update = self._gate(z, "Sigmoid", state)
        parts = self.sums.of(tanh.inputs[0]) if tanh is not None else None
        if update is None or parts is None or len(parts) != 2:
            return None
        for step, reset in (parts, parts[::-1]):
            if step.source is not update.W.source or step.matrix is None:
                continue
            for r, seen in _factors(reset.source):
                gate = self._gate(r, "Sigmoid", state)
                inner = self.sums.of(seen)
                if gate is None or inner is None or len(inner) != 1 or inner[0].source is not state:
                    continue
                if reset.matrix is None and inner[0].matrix is not None:  # r (h R + b)
                    new, after = Gate(step.plus(reset.bias), inner[0]), 1
                elif reset.matrix is not None and inner[0].matrix is None and inner[0].bias is None:  # (r h) R
                    new, after = Gate(step, reset), 0
                else:
                    continue
                gates = [update, gate, new]
                return _Cell(self, "GRU", (h,), gates, self._of(gates), {"linear_before_reset": after})
        return None

    def _rnn(self, h: int) -> _Cell | None:
        for function in ("Tanh", "Relu"):
            gate = self._gate(self.results[h], function, self.states[h])
            if gate is not None:
                more = {} if function == "Tanh" else {"activations": [function]}
                return _Cell(self, "RNN", (h,), [gate], self._of([gate]), more)
        return None

    def _of(self, gates: Sequence[Gate]) -> ir.Value | None:
        """The sequence that all gates look at."""
        sources = {g.W.source for g in gates}
        return self._sequence(sources.pop()) if len(sources) == 1 else None


@dataclass(frozen=True)
class _Cell:
    """A recurrent operator that computes what a loop computes; `order` says which state of the loop is which of its own."""

    steps: _Steps
    op_type: str
    order: tuple[int, ...]
    gates: Sequence[Gate]
    sequence: Any
    attrs: dict[str, Any]

    def write(self, kept: _Weights) -> None:
        node, body, op = self.steps.node, self.steps.body, kept.op
        graph, hidden = node.graph, int(self.gates[0].R.matrix.shape[1])  # type: ignore[union-attr]  # a gate has matrices
        assert graph is not None
        W, R = (np.concatenate([getattr(g, side).matrix.T for g in self.gates])[None] for side in "WR")
        B = np.concatenate([getattr(g, side).offset(hidden, W.dtype) for side in "WR" for g in self.gates])[None]
        kept.gone |= {id(g) for g in (body, *body.subgraphs())}
        weights = [kept.put(array, [getattr(g, side).of for g in self.gates], side) for array, side in ((W, "W"), (R, "R"))]
        biases = [v for g in self.gates for p in (g.W, g.R) for v in p.biases]
        bias = kept.put(B, biases, "B") if biases else None
        first = [None if _is_zero(node.inputs[2 + i]) else op.Unsqueeze(node.inputs[2 + i], [0]) for i in self.order]
        made = getattr(op, self.op_type)(
            self.sequence, *weights, bias, None, *first, hidden_size=hidden, outputs=1 + len(self.order), **self.attrs
        )
        found = {i: op.Squeeze(state, [0]) for i, state in zip(self.order, made[1:], strict=True) if is_taken(node.outputs[i])}
        for i in range(len(self.order), len(node.outputs)):
            if is_taken(node.outputs[i]):
                found[i] = op.Squeeze(made[0], [1])
        op.name_rest(node.name or self.op_type)
        replace(node, op.take(), [found.get(i) for i in range(len(node.outputs))], op, kept.root)


def _all(gates: Sequence[Gate | None]) -> list[Gate] | None:
    return None if None in gates else [g for g in gates if g is not None]


def _pairs(value: ir.Value | None, op_type: str) -> Iterator[tuple[Any, Any]]:
    node = made_by(value, op_type)
    if node is not None:
        a, b = node.inputs
        yield from ((a, b), (b, a))


def _factors(value: ir.Value | None) -> Iterator[tuple[Any, Any]]:
    return _pairs(value, "Mul")


def _terms(value: ir.Value | None) -> Iterator[tuple[Any, Any]]:
    return _pairs(value, "Add")


def _is_zero(value: ir.Value | None) -> bool:
    """Whether a value is zeros, a constant or grown from one."""
    value = behind(value)
    known = static(value)
    if known is not None:
        return not known.any()
    node = value.producer() if value is not None else None
    return node is not None and node.op_type == "Expand" and not node.domain and _is_zero(node.inputs[0])


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return attribute.as_int() if attribute is not None else default
