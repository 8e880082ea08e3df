"""Compares two models as graphs, with their subgraphs and functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff import fingerprints as prints
from onnxbridge.hub.analysis.graph_diff.compare_interface import compare_interface, paired_values, type_text
from onnxbridge.hub.analysis.graph_diff.compare_weights import Weight, WeightPairs, compare_weights
from onnxbridge.hub.analysis.graph_diff.difference import (
    Difference,
    ModelSummary,
    Move,
    NodeChange,
    NodeSummary,
    SettingChange,
    ShapeChange,
)
from onnxbridge.hub.analysis.graph_diff.match_nodes import match_nodes, replacements, value_matches
from onnxbridge.hub.analysis.graph_diff.settings import attributes, constant_of, input_names, is_constant, is_setting, settings
from onnxbridge.hub.analysis.graph_diff.weights import digest
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.schemas import name_of


@dataclass(frozen=True)
class _Pair:
    """Two matched nodes and the path of the graph that they are in."""

    scope: str
    first: ir.Node
    second: ir.Node
    how: str
    opsets: tuple[Mapping[str, int], Mapping[str, int]]


@dataclass
class _Matches:
    """Everything that is matched, over all graphs of two models."""

    pairs: list[_Pair] = field(default_factory=list)
    removed: list[tuple[str, ir.Node]] = field(default_factory=list)
    added: list[tuple[str, ir.Node]] = field(default_factory=list)
    replaced: list[tuple[str, ir.Node, ir.Node]] = field(default_factory=list)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    ends: list[tuple[str, str, ir.Value, ir.Value]] = field(default_factory=list)
    """Matched outputs of graphs: path, name, and the values that they are."""
    tokens: tuple[prints.Tokens, prints.Tokens] = ({}, {})
    loose_tokens: tuple[prints.Tokens, prints.Tokens] = ({}, {})


class _Digests:
    """Digests of tensors, each computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ir.TensorProtocol, bytes]] = {}

    def __call__(self, tensor: ir.TensorProtocol) -> bytes:
        if id(tensor) not in self._known:
            self._known[id(tensor)] = tensor, digest(tensor)
        return self._known[id(tensor)][1]


def compare_models(first: ir.Model, second: ir.Model, summaries: tuple[ModelSummary, ModelSummary]) -> Difference:
    """The differences of two models, which are not changed."""
    digests, ids, found = _Digests(), prints.Ids(), _Matches()
    _match_graphs("", first.graph, second.graph, (first.opset_imports, second.opset_imports), found, ids, digests)
    for key, function in first.functions.items():
        if (other := second.functions.get(key)) is not None:
            opsets = (function.opset_imports, other.opset_imports)
            _match_graphs(f"{_function_name(key)}()", function.graph, other.graph, opsets, found, ids, digests)
    weights = [list(_weights(model, digests)) for model in (first, second)]
    tables = [{w.value: w for w in side} for side in weights]
    pairs = compare_weights(weights[0], weights[1], list(_proposed(found, tables[0], tables[1])))
    counts = [_counts(first), _counts(second)]
    operators = {op: (counts[0][op], counts[1][op]) for op in sorted(counts[0] | counts[1]) if counts[0][op] != counts[1][op]}
    domains = sorted({*first.opset_imports, *second.opset_imports})
    versions = {d or "ai.onnx": (first.opset_imports.get(d), second.opset_imports.get(d)) for d in domains}
    functions = [{_function_name(k): None for k in m.functions} for m in (first, second)]
    return Difference(
        *summaries,
        interface=compare_interface(first.graph, second.graph),
        opsets={d: v for d, v in versions.items() if v[0] != v[1]},
        operators=operators,
        added=tuple(_summary(scope, node) for scope, node in found.added),
        removed=tuple(_summary(scope, node) for scope, node in found.removed),
        replaced=tuple((_summary(scope, a), _summary(scope, b)) for scope, a, b in found.replaced),
        changed=tuple(c for p in found.pairs if (c := _changed(p)) is not None),
        moved=tuple(_moves(found, pairs, tables)),
        weights_changed=tuple(pairs.changed), weights_added=tuple(pairs.added), weights_removed=tuple(pairs.removed),
        shapes=tuple(_shapes(found)),
        functions_added=tuple(f for f in functions[1] if f not in functions[0]),
        functions_removed=tuple(f for f in functions[0] if f not in functions[1]),
        renamed_nodes=tuple((_label(p.first), _label(p.second)) for p in found.pairs if _label(p.first) != _label(p.second)),
        renamed_weights=tuple(pairs.renamed), metadata=_metadata(*summaries),
        matched=dict(Counter(p.how for p in found.pairs)),
    )  # fmt: skip


def _match_graphs(
    path: str, first: ir.Graph, second: ir.Graph, opsets: tuple[Mapping[str, int], Mapping[str, int]], found: _Matches,
    ids: prints.Ids, digests: _Digests, depth: int = 0,
) -> None:  # fmt: skip
    """Match two graphs, then the subgraphs of the nodes that were matched."""
    by_name = depth == 0
    inputs = paired_values(first.inputs, second.inputs, by_name)
    outputs = paired_values(first.outputs, second.outputs, by_name)
    found.values.update((x, y) for x, y in inputs if x is not None and y is not None)
    found.ends += [(path, x.name or "", x, y) for x, y in outputs if x is not None and y is not None]
    sides = []
    for side, graph in enumerate((first, second)):
        numbers = {pair[side]: i for i, pair in enumerate(inputs) if pair[side] is not None}
        order = {id(pair[side]): i for i, pair in enumerate(outputs) if pair[side] is not None}
        scope = prints.Scope(graph, numbers, tuple(order[id(v)] for v in graph.outputs), opsets[side])  # type: ignore[arg-type]
        sides.append(prints.fingerprints(scope, ids, digests, found.tokens[side], found.loose_tokens[side]))
    match = match_nodes(first, second, (sides[0], sides[1]), found.values)
    found.values.update(value_matches(match, first, second))
    found.pairs += [_Pair(path, a, match.nodes[a], match.how[a], opsets) for a in first if a in match.nodes]
    replaced = replacements(match, first, second, found.values)
    found.replaced += [(path, a, b) for a, b in replaced.items()]
    found.removed += [(path, n) for n in first if not is_constant(n) and n not in match.nodes and n not in replaced]
    new = set(replaced.values())
    found.added += [(path, n) for n in second if not is_constant(n) and n not in match.back and n not in new]
    for a in [n for n in first if n in match.nodes]:
        bodies, others = _bodies(a), _bodies(match.nodes[a])
        for name in bodies.keys() & others.keys():
            inside = f"{path}/{_label(a)}.{name}".removeprefix("/")
            _match_graphs(inside, bodies[name], others[name], opsets, found, ids, digests, depth + 1)


def _counts(model: ir.Model) -> Counter[str]:
    """The number of nodes by operator."""
    return Counter(name_of(n.op_type, n.domain) for g in every_graph(model) for n in g if not is_constant(n))


def _bodies(node: ir.Node) -> dict[str, ir.Graph]:
    """The subgraphs of a node by attribute."""
    found = {}
    for name, a in node.attributes.items():
        if a.is_ref():
            continue
        if a.type == ir.AttributeType.GRAPH:
            found[name] = a.as_graph()
        elif a.type == ir.AttributeType.GRAPHS:
            found.update({f"{name}[{i}]": g for i, g in enumerate(a.as_graphs())})
    return found


def _function_name(key: ir.OperatorIdentifier) -> str:
    domain, name, overload = key
    return name_of(name, domain) + (f":{overload}" if overload else "")


def _graphs(model: ir.Model) -> Iterator[tuple[str, ir.Graph]]:
    """Every graph with its path."""

    def walk(path: str, graph: ir.Graph) -> Iterator[tuple[str, ir.Graph]]:
        yield path, graph
        for node in graph:
            for name, body in _bodies(node).items():
                yield from walk(f"{path}/{_label(node)}.{name}".removeprefix("/"), body)

    yield from walk("", model.graph)
    for key, function in model.functions.items():
        yield from walk(f"{_function_name(key)}()", function.graph)


def _weights(model: ir.Model, digests: _Digests) -> Iterator[Weight]:
    """The weights: initializers and Constant nodes that are no settings."""
    for path, graph in _graphs(model):
        for value in (*graph.initializers.values(), *(n.outputs[0] for n in graph if is_constant(n))):
            tensor = constant_of(value)
            if tensor is not None and not is_setting(tensor):
                yield Weight(f"{path}/{value.name}".removeprefix("/"), value, tensor, digests(tensor))


def _proposed(
    found: _Matches, first: Mapping[ir.Value, Weight], second: Mapping[ir.Value, Weight]
) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Weights that matched nodes read at the same position."""
    for p in found.pairs:
        for x, y in zip(p.first.inputs, p.second.inputs, strict=False):
            if x in first and y in second:
                yield x, y  # type: ignore[misc]


def _changed(p: _Pair) -> NodeChange | None:
    sides = tuple(zip((p.first, p.second), p.opsets, strict=True))
    old, new = (settings(*side) for side in sides)
    names = [n for n in {**old, **new} if repr(old.get(n)) != repr(new.get(n))]
    # an input that was a small constant and is computed now is a moved input, not a setting
    computed = {name for side in sides for name in _computed(*side)}
    stated = tuple(attributes(*side) for side in sides)
    changes = tuple(
        SettingChange(n, old.get(n, stated[0].get(n)), new.get(n, stated[1].get(n))) for n in names if n not in computed
    )
    renamed = "" if _label(p.first) == _label(p.second) else _label(p.second)
    return NodeChange(_summary(p.scope, p.first), renamed, changes) if changes else None


def _computed(node: ir.Node, opsets: Mapping[str, int]) -> Iterator[str]:
    for name, value in zip(input_names(node, opsets), node.inputs, strict=True):
        if value is not None and _setting(value) is None:
            yield name


def _setting(value: ir.Value | None) -> ir.TensorProtocol | None:
    tensor = constant_of(value)
    return tensor if tensor is not None and is_setting(tensor) else None


def _moves(found: _Matches, weights: WeightPairs, tables: Sequence[Mapping[ir.Value, Weight]]) -> Iterator[Move]:
    gone = {o for n in (*(n for _, n in found.removed), *(a for _, a, _ in found.replaced)) for o in n.outputs}
    new = {o for n in (*(n for _, n in found.added), *(b for _, _, b in found.replaced)) for o in n.outputs}
    values = found.values | weights.values

    def same(x: ir.Value | None, y: ir.Value | None) -> bool:
        if x in gone or y in new:  # next to a node that is reported as added or removed
            return True
        if x is None or y is None:
            return x is y
        if x in tables[0] and y in tables[1]:
            return values.get(x) is y or tables[0][x].digest == tables[1][y].digest
        if (_setting(x), _setting(y)) != (None, None):
            return _setting(x) is not None and _setting(y) is not None
        return values.get(x) is y

    for p in found.pairs:
        xs, ys = ([None if _unneeded(v) else v for v in n.inputs] for n in (p.first, p.second))
        if p.first.op_type in prints.COMMUTATIVE and len(xs) == len(ys):
            ys = _in_order(xs, ys, same)
        names = max((input_names(n, o) for n, o in zip((p.first, p.second), p.opsets, strict=True)), key=len)
        for name, x, y in zip(names, *zip(*zip_longest(xs, ys), strict=True), strict=True) if names else ():
            small = (x is None and _setting(y)) or (y is None and _setting(x))  # compared as settings
            if not small and not same(x, y):
                yield Move(_summary(p.scope, p.first), name, x and x.name, y and y.name)
    for path, name, x, y in found.ends:
        if not same(x, y):
            node = NodeSummary(name, "output", path, "", (), ())
            yield Move(node, "", _made_by(x), _made_by(y))


def _in_order(xs: Sequence[ir.Value | None], ys: Sequence[ir.Value | None], same) -> list[ir.Value | None]:  # type: ignore[no-untyped-def]
    """The inputs of a commutative operator, in the order of the other node's where they are the same."""
    left = list(ys)
    return [left.pop(next((i for i, y in enumerate(left) if same(x, y)), 0)) for x in xs]


def _unneeded(value: ir.Value | None) -> bool:
    return value is None or value.name == ""


def _made_by(value: ir.Value) -> str:
    node = value.producer()
    return f"{value.name}" if node is None else f"{node.op_type} {_label(node)}"


def _shapes(found: _Matches) -> Iterator[ShapeChange]:
    for p in found.pairs:
        for x, y in zip(p.first.outputs, p.second.outputs, strict=False):
            old, new = type_text(x, names=False), type_text(y, names=False)
            if "unknown" not in (old, new) and old != new:
                yield ShapeChange(x.name or "", p.scope, type_text(x), type_text(y))


def _summary(scope: str, node: ir.Node) -> NodeSummary:
    where = source_locations.read(node)
    location = f"{where.file}:{where.line}" if where.file else where.scope
    names = [tuple(v.name or "" if v is not None else "" for v in values) for values in (node.inputs, node.outputs)]
    return NodeSummary(_label(node), name_of(node.op_type, node.domain), scope, location, *names)


def _label(node: ir.Node) -> str:
    return node.name or next((v.name for v in node.outputs if v.name), "")


def _metadata(first: ModelSummary, second: ModelSummary) -> dict[str, tuple[str | None, str | None]]:
    old, new = ({"producer": s.producer, "ir_version": str(s.ir_version), **s.metadata} for s in (first, second))
    return {key: (old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)}
