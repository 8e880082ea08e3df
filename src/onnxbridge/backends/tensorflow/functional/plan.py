"""Divides a hub graph into the steps of a Keras model: calls of Keras layers and functions, and groups of other operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxbridge.backends.tensorflow import dtypes
from onnxbridge.backends.tensorflow.functional.expressions import Expression, Item, Result
from onnxbridge.backends.tensorflow.layers import around, layer
from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.fold import constant_array
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.lowering import Body, Ref, bind
from onnxbridge.rules import Rules

_BY_KERAS = frozenset({
    "float16", "float32", "float64", "bfloat16", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool",
    "string",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Step:
    """Nodes that become one part of the model. `results` has what computes each value; None where the nodes run by the rules."""

    nodes: tuple[ir.Node, ...]
    results: Mapping[ir.Value, Result] | None = None


def is_tensor(value: ir.Value) -> bool:
    """Whether Keras has symbolic tensors for such values: of known rank, and of a dtype that Keras has."""
    if not isinstance(value.type, ir.TensorType) or value.dtype is None or value.shape is None:
        return False
    try:
        return value.dtype not in dtypes.CARRIED and dtypes.of(value.dtype).name in _BY_KERAS
    except Unsupported:
        return False


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads, those that its subgraphs capture included."""
    found = [v for v in node.inputs if v is not None]
    for body in bodies_of(node):
        own = set(body.inputs) | set(body.initializers.values())
        for inner in body:
            found += [v for v in inputs_of(inner) if v not in own]
            own.update(inner.outputs)
        found += [v for v in body.outputs if v not in own]
    return list(dict.fromkeys(found))


def steps(graph: ir.Graph, functions: bool = True) -> list[Step]:
    """The steps of a graph in an order in which each can run after those before it.

    Without `functions`, operators that would be calls of functions run by the rules.
    """
    native: dict[ir.Node, Step] = {}
    taken: set[ir.Node] = set()
    read: set[ir.Value] = set()
    hidden: set[ir.Value] = set()  # results of nodes inside of a step, which no other step can read
    nodes = [n for n in graph if not all(o.const_value is not None for o in n.outputs)]
    for rules, node in ((rules, node) for rules in (around, layer) for node in nodes):
        results = _results(rules, node) if node not in taken else None
        if results is not None and (functions or all(map(_is_layers, results))):
            replaced = _replaced(results)
            if any(n in taken for n in replaced):
                continue
            step = Step((node, *(n for n in replaced if n is not node)), _named(node, replaced, results))
            own_reads = {v for r in results for v in _values_in(r)}
            own_hidden = {o for n in step.nodes for o in n.outputs if o not in (step.results or {})}
            if not own_reads.isdisjoint(hidden) or not own_hidden.isdisjoint(read):
                continue
            read |= own_reads
            hidden |= own_hidden
            taken.update(step.nodes)
            native.update(dict.fromkeys(step.nodes, step))
    return _needed(list(_ordered(nodes, native)), graph)


def _needed(found: Sequence[Step], graph: ir.Graph) -> list[Step]:
    """The steps that the graph's outputs depend on: layers may compute their results without some of the nodes."""
    wanted = set(graph.outputs)
    kept = []
    for step in reversed(found):
        results = step.results
        if not any(v in wanted for v in results or (o for n in step.nodes for o in n.outputs)):
            continue
        read = [v for n in step.nodes for v in inputs_of(n)] if results is None else []
        wanted.update(read if results is None else (v for r in results.values() for v in _values_in(r)))
        kept.append(step)
    return kept[::-1]


def _values_in(result: Any) -> Iterator[ir.Value]:
    """The hub values that a result is computed from, weights not included."""
    if isinstance(result, ir.Value):
        yield result
    elif isinstance(result, Item):
        yield from _values_in(result.call)
    elif isinstance(result, Expression):
        for item in result.operands:
            yield from _values_in(item)


def _results(rules: Rules, node: ir.Node) -> tuple[Result, ...] | None:
    call = graph_reader.call_of(node)
    rule = rules.get(call.op)
    if rule is None or any(not is_tensor(v) for v in (*node.inputs, *node.outputs) if v is not None and v.name):
        return None

    def resolve(item: Any) -> Any:
        if isinstance(item, Body):
            raise Unsupported("a subgraph")
        return item.key if isinstance(item, Ref) else item

    try:
        args, attrs = bind(rule, call, resolve, lambda ref: constant_array(ref.key))  # type: ignore[arg-type]
        found = rule.lower(node, *args, **attrs)
    except Unsupported:
        return None
    results = found if found is None or isinstance(found, tuple) else (found,)
    if results is not None and any(v.const_value is not None for r in results for v in _values_in(r)):
        return None  # Keras has no symbolic tensors for constants, which an operator may read alone
    return results


def _is_layers(result: Any) -> bool:
    """Whether a result is computed by layers only."""
    if isinstance(result, Item):
        return _is_layers(result.call)
    return not isinstance(result, Expression) or (result.is_layer and all(map(_is_layers, result.operands)))


def _replaced(results: Sequence[Result]) -> tuple[ir.Node, ...]:
    return tuple(dict.fromkeys(n for r in results if isinstance(r, (Expression, Item)) for n in r.replaces))


def _named(node: ir.Node, replaced: Sequence[ir.Node], results: Sequence[Result]) -> Mapping[ir.Value, Result]:
    """The results by the values that they are."""
    found: dict[ir.Value, Result] = {}
    for output, result in zip(node.outputs, results, strict=False):
        if result is None:  # of an output that is not used
            continue
        own = result.replaces if isinstance(result, (Expression, Item)) else ()
        found[own[-1].outputs[0] if own else output] = result
    return found


def _ordered(nodes: Sequence[ir.Node], native: Mapping[ir.Node, Step]) -> Iterator[Step]:
    """The steps in topological order; operators that exchange what is no tensor of Keras are one step."""
    joined = _joined(nodes, native, sizes=True)
    if any(len(part) > 1 and any(n in native for n in part) for part in joined):
        joined = _joined(nodes, native, sizes=False)
    for part in joined:
        own = native.get(part[0])
        yield own if own is not None and set(own.nodes) == set(part) else Step(tuple(part))


def _joined(nodes: Sequence[ir.Node], native: Mapping[ir.Node, Step], sizes: bool) -> list[list[ir.Node]]:
    """The groups of nodes, in topological order: strongly connected where the edges of joined nodes go both ways."""
    position = {node: i for i, node in enumerate(nodes)}
    group = {node: position[native[node].nodes[0]] if node in native else i for node, i in position.items()}
    before: dict[int, set[int]] = {g: set() for g in group.values()}
    for node in nodes:
        for value in inputs_of(node):
            producer = value.producer()
            if producer not in group or group[producer] == group[node] or value.const_value is not None:
                continue
            a, b = group[producer], group[node]
            before[b].add(a)
            both_run = producer not in native and node not in native
            if not is_tensor(value) or (sizes and both_run and _is_size(value)):
                before[a].add(b)
    members: dict[int, list[ir.Node]] = {}
    for node in nodes:
        members.setdefault(group[node], []).append(node)
    return [sorted((n for g in part for n in members[g]), key=position.__getitem__) for part in _components(before)]


def _is_size(value: ir.Value) -> bool:
    """Whether a value is a size or a list of sizes."""
    return value.shape is not None and len(value.shape) <= 1 and value.dtype in (ir.DataType.INT64, ir.DataType.INT32)


def _components(before: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """The strongly connected components of a graph given by predecessors, predecessors first (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in sorted(before):
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(sorted(before[root])))]
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(sorted(before[other]))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = stack[stack.index(node) :]
                    del stack[len(stack) - len(part) :]
                    on_stack.difference_update(part)
                    found.append(part)
    return found
