"""Fingerprints of nodes: equal ones compute the same from the inputs, or are used in the same way up to the outputs.

A fingerprint is an integer that stands for a nested tuple, so that comparing two of them costs nothing and no two tuples collide.
Both models have to use the same `Ids`. Each function is linear in the number of nodes and edges.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.settings import constant_of, is_constant, is_setting, settings
from onnxbridge.hub.ir.graphs import bodies_of

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal", "Sum", "Mean", "BitwiseAnd", "BitwiseOr"})
TRANSPARENT = frozenset({"Cast", "Identity"})
"""Operators that a loose fingerprint looks through: converters to other dtypes insert them."""


class Ids(dict[Hashable, int]):
    """Consecutive integers for hashable keys."""

    def __missing__(self, key: Hashable) -> int:
        self[key] = number = len(self)
        return number


@dataclass
class Fingerprints:
    """Of one graph, by node. `exact` ones include settings and the digests of weights; `loose` ones are operators only."""

    forward: dict[ir.Node, int] = field(default_factory=dict)
    backward: dict[ir.Node, int] = field(default_factory=dict)
    loose_forward: dict[ir.Node, int] = field(default_factory=dict)
    loose_backward: dict[ir.Node, int] = field(default_factory=dict)
    around: dict[ir.Node, int] = field(default_factory=dict)
    """The operator, its inputs' and its consumers' operators, and the shapes of its weights."""
    weights: dict[ir.Node, Hashable] = field(default_factory=dict)
    """The operator and its weights; "" for a node without any."""


@dataclass(frozen=True)
class Scope:
    """A graph with what its fingerprints depend on: numbers of its inputs and outputs, and versions of the operators."""

    graph: ir.Graph
    inputs: Mapping[ir.Value, int]
    outputs: tuple[int, ...]
    opsets: Mapping[str, int]


Tokens = dict[ir.Value, int]
DigestOf = Callable[[ir.TensorProtocol], bytes]


def fingerprints(scope: Scope, ids: Ids, digest_of: DigestOf, outer: Tokens, loose_outer: Tokens) -> Fingerprints:
    """The fingerprints of a graph's nodes.

    `outer` and `loose_outer` hold the forward fingerprints of the values of surrounding graphs; those of this graph's are added.
    """
    found = Fingerprints()
    walk = _Walk(ids, digest_of, scope.opsets)
    for value, number in scope.inputs.items():
        outer[value] = loose_outer[value] = ids["graph input", number]
    walk.forward(scope.graph, outer, found.forward, 0)
    walk.forward_loose(scope.graph, loose_outer, found.loose_forward, 0)
    walk.backward(scope, found.backward, exact=True)
    walk.backward(scope, found.loose_backward, exact=False)
    walk.neighbours(scope.graph, found.around, found.weights)
    return found


@dataclass(frozen=True)
class _Walk:
    ids: Ids
    digest_of: DigestOf
    opsets: Mapping[str, int]
    labels: dict[ir.Node, int] = field(default_factory=dict)

    def label(self, node: ir.Node) -> int:
        if node not in self.labels:
            self.labels[node] = self.ids["label", node.domain, node.op_type, _hashable(settings(node, self.opsets))]
        return self.labels[node]

    def weights(self, node: ir.Node) -> tuple[Hashable, ...]:
        tensors = [(i, constant_of(v)) for i, v in enumerate(node.inputs)]
        return tuple((i, self.digest_of(t)) for i, t in tensors if t is not None and not is_setting(t))

    def forward(self, graph: ir.Graph, tokens: Tokens, found: dict[ir.Node, int], depth: int) -> None:
        ids = self.ids
        for node in graph:
            if is_constant(node):
                continue
            read = [(i, self._token(v, tokens)) for i, v in enumerate(node.inputs) if v is not None]
            known = [(i, t) for i, t in read if t is not None]
            if node.op_type in COMMUTATIVE:
                known = [(0, t) for t in sorted(t for _, t in known)]
            bodies = []
            for body in bodies_of(node):
                for i, v in enumerate(body.inputs):
                    tokens[v] = ids["body input", depth, i]
                inside: dict[ir.Node, int] = {}
                self.forward(body, tokens, inside, depth + 1)
                bodies.append(tuple(self._token(v, tokens) for v in body.outputs))
            found[node] = own = ids[self.label(node), tuple(known), tuple(bodies)]
            for i, v in enumerate(node.outputs):
                tokens[v] = ids["output", own, i]

    def _token(self, value: ir.Value, tokens: Tokens) -> int | None:
        """The fingerprint of a value; None for a constant that is a setting of its node."""
        tensor = constant_of(value)
        if tensor is None:
            return tokens.get(value, -1)
        return None if is_setting(tensor) else self.ids["weight", self.digest_of(tensor)]

    def forward_loose(self, graph: ir.Graph, tokens: Tokens, found: dict[ir.Node, int], depth: int) -> None:
        ids = self.ids
        for node in graph:
            if is_constant(node):
                continue
            known = [tokens.get(v, -1) for v in node.inputs if v is not None and constant_of(v) is None]
            if node.op_type in COMMUTATIVE:
                known.sort()
            for body in bodies_of(node):
                for i, v in enumerate(body.inputs):
                    tokens[v] = ids["body input", depth, i]
                self.forward_loose(body, tokens, {}, depth + 1)
            found[node] = own = ids["loose", node.domain, node.op_type, tuple(known)]
            for i, v in enumerate(node.outputs):
                tokens[v] = known[0] if node.op_type in TRANSPARENT and known else ids["output", own, i]

    def backward(self, scope: Scope, found: dict[ir.Node, int], exact: bool) -> None:
        ids = self.ids
        ends: dict[ir.Value, list[int]] = {}
        for value, number in zip(scope.graph.outputs, scope.outputs, strict=True):
            ends.setdefault(value, []).append(ids["graph output", number])
        for node in reversed(list(scope.graph)):
            if is_constant(node):
                continue
            uses = tuple(tuple(sorted(self._uses(v, scope.graph, ends, found, exact))) for v in node.outputs)
            if exact:
                found[node] = ids["backward", self.label(node), self.weights(node), uses]
            else:
                found[node] = ids["loose backward", node.domain, node.op_type, uses]

    def _uses(
        self, value: ir.Value, graph: ir.Graph, ends: Mapping[ir.Value, list[int]], found: Mapping[ir.Node, int], exact: bool
    ) -> list[int]:
        """What each use of a value leads to; loose ones look through casts."""
        uses, waiting = [], [value]
        while waiting:
            v = waiting.pop()
            uses += ends.get(v, [])
            for consumer, index in v.uses():
                if consumer.graph is not graph:
                    uses.append(self.ids["used in a subgraph", consumer.op_type])
                elif not exact and consumer.op_type in TRANSPARENT:
                    waiting.append(consumer.outputs[0])
                else:
                    position = 0 if consumer.op_type in COMMUTATIVE else index
                    uses.append(self.ids["use", found.get(consumer, -1), position])
        return uses

    def neighbours(self, graph: ir.Graph, found: dict[ir.Node, int], weights: dict[ir.Node, Hashable]) -> None:
        for node in graph:
            if is_constant(node):
                continue
            before = tuple(_producer(v) for v in node.inputs if v is not None and constant_of(v) is None)
            after = tuple(sorted((c.op_type, i) for v in node.outputs for c, i in v.uses()))
            read = self.weights(node)
            weights[node] = (node.op_type, node.domain, read) if read else ""
            tensors = [constant_of(v) for v in node.inputs]
            shapes = tuple(tuple(t.shape.numpy()) for t in tensors if t is not None and not is_setting(t))
            found[node] = self.ids["around", node.domain, node.op_type, before, after, shapes]


def _producer(value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else node.op_type


def _hashable(found: Mapping[str, Hashable]) -> Hashable:
    # a NaN is not equal to itself, and 1 == 1.0 == True
    return tuple(sorted((name, repr(value)) for name, value in found.items()))
