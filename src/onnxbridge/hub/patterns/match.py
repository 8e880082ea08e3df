"""The pattern matcher: patterns of nested operator calls, and all their matches with the nodes that produce a value.

    X = Value("x")
    Product(X, 0.5, Op("Add", 1.0, Op("Erf", Product(X, math.sqrt(0.5)))))

A pattern yields a `Found` for each match: its named values and numbers, and the matched nodes. A number matches a constant of
one element that is equal up to rounding in its dtype. The inputs of commutative operators match in any order. A `Product`
matches multiplications, divisions, roots and powers in any nesting. A constant that was folded from weights matches as its
formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.fold import FORMULA, Formula, constant_array
from onnxbridge.hub.ir.provenance import state_of
from onnxbridge.hub.ir.schemas import plain

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})
MAX_DEPTH = 6  # limit of nested multiplications in a product


@dataclass(frozen=True)
class Found:
    """One match of a pattern."""

    named: Mapping[str, Any] = field(default_factory=dict)
    nodes: frozenset[ir.Node] = frozenset()

    def naming(self, name: str, what: Any) -> Found | None:
        """The match with a value or number added under a name; None if the name has another value already."""
        if name not in self.named:
            return Found({**self.named, name: what}, self.nodes)
        return self if self.named[name] is what or (isinstance(what, float) and self.named[name] == what) else None

    def covering(self, *nodes: ir.Node | Formula) -> Found:
        return Found(self.named, self.nodes.union(node for node in nodes if isinstance(node, ir.Node)))


class Pattern(Protocol):
    """The protocol of patterns."""

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        """All matches of the value that extend the match found so far."""


@dataclass(frozen=True)
class Value:
    """Any value; the same one for each use of the name."""

    name: str

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        more = found.naming(self.name, value)
        if more is not None:
            yield more


@dataclass(frozen=True)
class Number:
    """Any constant of one element; its number is stored under the name."""

    name: str

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        number = scalar(value)
        more = None if number is None else found.naming(self.name, number)
        if more is not None:
            yield more


@dataclass(frozen=True)
class Exactly:
    """A given number; a Python number in a pattern is converted to it."""

    number: float

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        number = scalar(value)
        if number is not None and close(number, self.number, value):
            yield found


@dataclass(frozen=True)
class Either:
    """One of several patterns."""

    patterns: tuple[Pattern, ...]

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        return itertools.chain.from_iterable(pattern.match(value, found) for pattern in self.patterns)


@dataclass(frozen=True)
class Call:
    """The only used result of an operator whose inputs match; it must have exactly these inputs. See `Op`."""

    op_type: str
    inputs: tuple[Pattern | None, ...]
    attributes: Mapping[str, Any]
    node: str

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        node = formula(value)
        if node is None or not produces_only(node, value, self.op_type):
            return
        if not all(_attribute_matches(attribute(node, k), wanted) for k, wanted in self.attributes.items()):
            return
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        if len(inputs) != len(self.inputs):
            return
        more = found.covering(node)
        named = more.naming(self.node, node) if self.node else more
        if named is None:
            return
        swapped = self.op_type in COMMUTATIVE and len(inputs) == 2
        for order in (inputs, inputs[::-1]) if swapped else (inputs,):
            yield from _match_all(self.inputs, order, named)


def Op(op_type: str, *inputs: Pattern | float | None, node: str = "", **attributes: Any) -> Call:
    """A pattern of an operator call. `node` is a name for the node; attributes not given must have their default."""
    return Call(op_type, tuple(map(_pattern, inputs)), attributes, node)


@dataclass(frozen=True)
class Power:
    """A factor of a `Product` with an exponent."""

    base: Pattern
    exponent: float


class Product:
    """A product of a number and powers of values; with a `Number` among the factors the number is stored, not compared."""

    def __init__(self, *factors: Pattern | Power | float) -> None:
        self._number = math.prod(f for f in factors if isinstance(f, (int, float)))
        self._name = next((f.name for f in factors if isinstance(f, Number)), "")
        rest = [f for f in factors if not isinstance(f, (int, float, Number))]
        self._factors = tuple(f if isinstance(f, Power) else Power(f, 1.0) for f in rest)

    def match(self, value: ir.Value, found: Found) -> Iterator[Found]:
        wanted = sorted(f.exponent for f in self._factors)
        for number, powers, nodes in _factored([(value, 1.0)], 1.0, {}, frozenset(), len(wanted) + 2):
            if sorted(powers.values()) != wanted:
                continue
            more = found.covering(*nodes)
            named = more.naming(self._name, number) if self._name else more
            if named is None or not (self._name or close(number, self._number, value)):
                continue
            for order in itertools.permutations(powers.items()):
                if all(f.exponent == e for f, (_, e) in zip(self._factors, order, strict=True)):
                    yield from _match_all(tuple(f.base for f in self._factors), [v for v, _ in order], named)


def _factored(
    pending: list[tuple[ir.Value, float]], number: float, powers: dict[ir.Value, float],
    nodes: frozenset[ir.Node | Formula], most: int,
) -> Iterator[tuple[float, dict[ir.Value, float], frozenset[ir.Node | Formula]]]:  # fmt: skip
    """All factorizations of a product into a number and powers of values, the finest first."""
    if len(powers) + len(pending) > most:
        return
    if not pending:
        yield number, powers, nodes
        return
    (value, exponent), *rest = pending
    split = _operands(value, exponent) if len(nodes) < MAX_DEPTH else None
    if split is not None:
        node, factor, inner = split
        yield from _factored([*inner, *rest], number * factor, powers, nodes | {node}, most)
    yield from _factored(rest, number, {**powers, value: powers.get(value, 0.0) + exponent}, nodes, most)


def _operands(value: ir.Value, exponent: float) -> tuple[ir.Node | Formula, float, list[tuple[ir.Value, float]]] | None:
    """The node that produces a value, and a power of the value as a number and powers of the node's inputs."""
    node = formula(value)
    if node is None or node.domain or node.op_type not in ("Mul", "Div", "Neg", "Sqrt", "Reciprocal", "Pow"):
        return None
    if abs(exponent) != 1:  # roots and powers of products are not expanded: signs would be lost
        return None
    first = node.inputs[0]
    second = node.inputs[1] if len(node.inputs) > 1 else None
    if first is None:
        return None
    if node.op_type in ("Sqrt", "Reciprocal", "Neg"):
        sign = -1.0 if node.op_type == "Neg" else 1.0
        return node, sign, [(first, {"Sqrt": 0.5, "Reciprocal": -1.0, "Neg": 1.0}[node.op_type] * exponent)]
    assert second is not None
    if node.op_type == "Pow":
        power = scalar(second)
        return None if power is None else (node, 1.0, [(first, power * exponent)])
    if first is second:
        return None if node.op_type == "Div" else (node, 1.0, [(first, 2 * exponent)])
    inner, number = [], 1.0
    for operand, e in ((first, exponent), (second, -exponent if node.op_type == "Div" else exponent)):
        known = scalar(operand)
        if known is None:
            inner.append((operand, e))
        elif known == 0 or not math.isfinite(known):
            return None
        else:
            number *= known**e
    return node, number, inner


def _match_all(patterns: tuple[Pattern | None, ...], values: list[Any], found: Found) -> Iterator[Found]:
    """All matches of a list of values with a list of patterns."""
    if not patterns:
        yield found
        return
    first, *rest = patterns
    if first is None or values[0] is None:
        if first is None and values[0] is None:
            yield from _match_all(tuple(rest), values[1:], found)
        return
    for more in first.match(values[0], found):
        yield from _match_all(tuple(rest), values[1:], more)


def _pattern(item: Pattern | float | None) -> Pattern | None:
    return Exactly(float(item)) if isinstance(item, (int, float)) else item


def producer(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that produces a value, if it has this operator and no other used output."""
    node = value.producer() if value is not None else None
    return node if node is not None and value is not None and produces_only(node, value, op_type) else None


def produces_only(node: ir.Node | Formula, value: ir.Value, op_type: str) -> bool:
    """Whether a node has this operator, and no output but the value is used."""
    if node.op_type != op_type or node.domain:
        return False
    return all(o is value or not (o.uses() or o.is_graph_output()) for o in node.outputs)


def formula(value: ir.Value) -> ir.Node | Formula | None:
    """The node that produces a value, or the formula of a folded constant."""
    return value.producer() or value.meta.get(FORMULA)


def attribute(node: ir.Node | Formula, name: str) -> Any:
    """An attribute's value, None if the node does not set it."""
    found = node.attributes.get(name)
    return None if found is None else plain(found)


def scalar(value: ir.Value | None) -> float | None:
    """The number of a constant of one element and rank 0 or 1, None for anything else and for parameters."""
    if value is None or value.const_value is None or value.const_value.size != 1 or len(value.const_value.shape) > 1:
        return None
    if value.is_graph_input() or state_of(value.const_value) == "parameter":
        return None
    array = constant_array(value)
    kind = None if value.dtype is None else value.dtype.is_floating_point() or value.dtype.is_integer()
    return float(array.reshape(-1)[0]) if array is not None and kind else None


def close(a: float, b: float, value: ir.Value) -> bool:
    """Whether two numbers are equal up to a few roundings in the value's dtype."""
    if value.dtype is None or not value.dtype.is_floating_point():
        return a == b
    return math.isclose(a, b, rel_tol=4 * epsilon(value.dtype))


def epsilon(dtype: ir.DataType) -> float:
    """The machine epsilon of a dtype."""
    return float(ml_dtypes.finfo(dtype.numpy()).eps)  # type: ignore[no-untyped-call]


def _attribute_matches(actual: Any, expected: Any) -> bool:
    if callable(expected):
        return bool(expected(actual))
    if isinstance(expected, float) and isinstance(actual, (int, float)):
        return math.isclose(actual, expected, rel_tol=8 * float(np.finfo(np.float32).eps))
    return bool(actual == expected)
