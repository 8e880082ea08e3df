"""Propagates transposes through a graph and cancels them, for any permutation.

A node is moved before a transpose only if the result is provably the same, and only if a later transpose cancels or a later
reduction makes the transpose cheaper. A transposed value represents `Transpose(source, perm)` of another value; the Transpose
node is created only where a node needs the value itself. Linear in the number of nodes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.graphs import names_in
from onnxbridge.hub.ir.unique_name import unique_name

Perm = tuple[int, ...]


@dataclass(frozen=True)
class TransposedValue:
    """A value that represents `Transpose(source, perm)`."""

    source: ir.Value
    perm: Perm


def inverse(perm: Sequence[int]) -> Perm:
    """The inverse permutation."""
    return tuple(int(i) for i in np.argsort(perm))


def is_identity(perm: Sequence[int]) -> bool:
    """Whether a permutation is the identity."""
    return list(perm) == list(range(len(perm)))


def restricted(perm: Sequence[int], kept: Sequence[int]) -> Perm:
    """The permutation of the remaining axes if only the axes `kept` of the transposed value remain, in order."""
    sources = [perm[a] for a in kept]
    order = sorted(sources)
    return tuple(order.index(s) for s in sources)


class TransposePropagation:
    """State of one run of the pass, used by the rules in `transpose_rules.py`."""

    def __init__(self, model: ir.Model, rules: Mapping[str, Callable[..., Any]], reduces: Callable[[ir.Node], bool]) -> None:
        self._rules = rules
        self._reduces = reduces
        self._root = model.graph
        self._transposed_values: dict[ir.Value, TransposedValue] = {}
        self._created: MutableMapping[tuple[ir.Value, Perm], ir.Value] = {}
        self._names = names_in(model)
        self._profitable: set[ir.Node] = set()
        self._node: ir.Node | None = None
        self._graph = model.graph

    def run(self) -> None:
        if not any(n.op_type == "Transpose" for n in ir.traversal.RecursiveGraphIterator(self._root)):
            return
        self._find_profitable(self._root)
        self._propagate(self._root, {})

    # where propagation is profitable

    def _find_profitable(self, graph: ir.Graph) -> None:
        """Collect the nodes after which a transposed value reaches a transpose or is reduced."""
        for node in reversed(graph):
            for inner in _graphs_in(node):
                self._find_profitable(inner)
            if node.op_type in self._rules and node.domain == "" and (self._reduces(node) or self._reaches_transpose(node)):
                self._profitable.add(node)

    def _reaches_transpose(self, node: ir.Node) -> bool:
        return any(c.op_type == "Transpose" or c in self._profitable for o in node.outputs for c, _ in o.uses())

    # propagation

    def _propagate(self, graph: ir.Graph, created: dict[tuple[ir.Value, Perm], ir.Value]) -> None:
        outer = self._created, self._graph
        self._created, self._graph = ChainMap(created, self._created), graph
        for node in list(graph):
            self._node = node
            for i, v in enumerate(node.inputs):
                t = self._transposed_values.get(v) if v is not None else None
                if t is not None and is_identity(t.perm):
                    node.replace_input_with(i, t.source)
            if node.op_type == "Transpose" and node.domain == "":
                self._transpose(node)
            elif not self._apply_rule(node):
                self._materialize_inputs(node)
            for inner in _graphs_in(node):
                self._propagate(inner, {})
        self._node = None
        for i, v in enumerate(graph.outputs):
            if v in self._transposed_values:
                graph.outputs[i] = self._as_output(v)
        for node in [n for n in reversed(graph) if n.op_type == "Transpose"]:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)
        self._created, self._graph = outer

    def _transpose(self, node: ir.Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        if x is None or (x.shape is None and "perm" not in node.attributes):
            return
        perm = _perm_of(node)
        t = self._transposed_values.get(x)
        source, perm = (t.source, tuple(t.perm[p] for p in perm)) if t is not None else (x, perm)
        reshaped = self._reshaped(source, perm)
        if reshaped is not None:
            source, perm = reshaped, tuple(range(len(perm)))
        elif t is None:
            self._created.setdefault((source, perm), y)
        self._transposed_values[y] = TransposedValue(source, perm)

    def _reshaped(self, x: ir.Value, perm: Perm) -> ir.Value | None:
        """`Transpose(x, perm)` as a reshape, if only axes of size 1 move and `x` is itself the result of a reshape."""
        node = x.producer()
        if node is None or node.op_type not in ("Reshape", "Unsqueeze") or x.shape is None or not keeps_order(x.shape, perm):
            return None
        sizes = [x.shape[p] for p in perm]
        if sum(not isinstance(s, int) for s in sizes) > 1 or 0 in sizes or node.inputs[0] in self._transposed_values:
            return None
        key = (x, perm)
        if key not in self._created:
            shape = self.constant(np.array([s if isinstance(s, int) else -1 for s in sizes], np.int64), f"{x.name}.shape")
            self._created[key] = self.write("Reshape", [node.inputs[0], shape], x, ir.Shape(sizes), "transposed")
        return self._created[key]

    def _apply_rule(self, node: ir.Node) -> bool:
        """Move the node before the transposes of its inputs; returns False if it must stay after them."""
        rule = self._rules.get(node.op_type) if node.domain == "" else None
        if rule is None or node not in self._profitable or not any(v in self._transposed_values for v in node.inputs):
            return False
        perms = rule(self, node)
        if perms is None:
            return False
        for o, perm in zip(node.outputs, perms, strict=True):
            if perm is not None and not is_identity(perm):
                self._replace_by_transposed(o, perm)
        return True

    def _replace_by_transposed(self, value: ir.Value, perm: Perm) -> None:
        """Replace a value, whose node now computes its inverse transpose, by a transposed value."""
        replacement = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.replace_all_uses_with(replacement, replace_graph_outputs=True)
        self._transposed_values[replacement] = TransposedValue(value, perm)
        if value.shape is not None:
            value.shape = ir.Shape([value.shape[i] for i in inverse(perm)])

    def _materialize_inputs(self, node: ir.Node) -> None:
        """Replace transposed inputs of a node by Transpose nodes."""
        for i, v in enumerate(node.inputs):
            if v is not None and v in self._transposed_values:
                node.replace_input_with(i, self.materialize(v))

    # used by the rules

    def transposed_value(self, value: ir.Value | None) -> TransposedValue | None:
        """The source and permutation of a transposed value, None for other values."""
        return self._transposed_values.get(value) if value is not None else None

    def materialize(self, value: ir.Value) -> ir.Value:
        """The value itself; a Transpose node is created for a transposed value."""
        t = self._transposed_values.get(value)
        return value if t is None else self.transposed(t.source, t.perm)

    def transposed(self, source: ir.Value, perm: Perm) -> ir.Value:
        """`Transpose(source, perm)`, created once per graph; for a constant, a transposed view as a constant."""
        if is_identity(perm):
            return source
        key = (source, perm)
        if key not in self._created:
            if source.const_value is not None:
                self._created[key] = self.constant(source.const_value.numpy().transpose(perm), f"{source.name}.transpose", source)
            else:
                shape = None if source.shape is None else ir.Shape([source.shape[p] for p in perm])
                attributes = [ir.AttrInt64s("perm", list(perm))]
                self._created[key] = self.write("Transpose", [source], source, shape, "transpose", attributes)
        return self._created[key]

    def broadcast_operand(self, value: ir.Value, perm: Perm) -> ir.Value | None:
        """An operand for a node whose result is transposed by `perm`, such that it broadcasts as `value` did before.

        None if its rank is unknown.
        """
        t = self._transposed_values.get(value)
        shape = value.shape
        if t is None and shape is None:
            return None
        rank = len(t.perm) if t is not None else len(shape)  # type: ignore[arg-type]
        missing = len(perm) - rank
        if t is not None:
            if (*range(missing), *(p + missing for p in t.perm)) == perm:
                return t.source
            value = self.materialize(value)
            shape = value.shape
        if rank == 0 or (shape is not None and all(s == 1 for s in shape)):
            return value
        back = inverse(perm)
        own = tuple(b - missing for b in back if b >= missing)
        transposed = self.transposed(value, own)
        added = [i for i, b in enumerate(back) if b < missing]
        if added == list(range(missing)):
            return transposed  # broadcasting adds leading axes by itself
        first_kept = next(i for i, b in enumerate(back) if b >= missing)
        return self.unsqueezed(transposed, [a - first_kept for a in added if a > first_kept])

    def unsqueezed(self, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """The value with axes of size 1 added."""
        if value.const_value is not None:
            return self.constant(np.expand_dims(value.const_value.numpy(), tuple(axes)), f"{value.name}.unsqueeze", value)
        assert value.shape is not None
        rest = iter(value.shape)
        shape = ir.Shape([1 if i in axes else next(rest) for i in range(len(value.shape) + len(axes))])
        at = self.constant(np.array(axes, np.int64), f"{value.name}.axes")
        return self.write("Unsqueeze", [value, at], value, shape, "unsqueeze")

    def constant(self, array: np.ndarray[Any, Any], name: str, source: ir.Value | None = None) -> ir.Value:
        """A new initializer, derived from that of `source`."""
        label = unique_name(name, self._names)
        tensor = ir.tensor(array, name=label)
        if source is not None:
            provenance.inherit_state(tensor, [source.const_value])
        created = ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(list(array.shape)), const_value=tensor)
        self._root.register_initializer(created)
        return created

    def write(
        self, op_type: str, inputs: Sequence[ir.Value | None], like: ir.Value, shape: ir.Shape | None, suffix: str,
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:  # fmt: skip
        """A new node before the current one (or at the end of the graph), with the dtype of `like`."""
        node = ir.Node("", op_type, inputs, attributes)
        out = node.outputs[0]
        out.name = node.name = unique_name(f"{like.name}.{suffix}", self._names)
        out.type, out.shape = like.type, shape
        producer = like.producer()
        if producer is not None:
            node.metadata_props.update(producer.metadata_props)
        if self._node is not None:
            self._graph.insert_before(self._node, [node])
        else:
            self._graph.append(node)
        return out

    def _as_output(self, value: ir.Value) -> ir.Value:
        """A transposed value as a graph output, with the output's name."""
        t = self._transposed_values[value]
        name = value.name
        shape = None if t.source.shape is None else ir.Shape([t.source.shape[p] for p in t.perm])
        for v in (value, t.source):
            if v.name == name:
                v.name = unique_name(f"{name}.transposed", self._names)
        kind, attributes = ("Identity", []) if is_identity(t.perm) else ("Transpose", [ir.AttrInt64s("perm", list(t.perm))])
        created = self.write(kind, [t.source], value, shape, "output", attributes)
        created.name = name
        return created


def keeps_order(shape: ir.Shape | Sequence[Any], perm: Sequence[int]) -> bool:
    """Whether a permutation only moves axes of size 1."""
    transposed = [p for p in perm if shape[p] != 1]
    return transposed == sorted(transposed)


def _perm_of(node: ir.Node) -> Perm:
    attr = node.attributes.get("perm")
    if attr is not None:
        return tuple(attr.as_ints())
    x = node.inputs[0]
    assert x is not None and x.shape is not None
    return tuple(reversed(range(len(x.shape))))


def _graphs_in(node: ir.Node) -> Iterator[ir.Graph]:
    for attr in node.attributes.values():
        if attr.type == ir.AttributeType.GRAPH:
            yield attr.as_graph()
        elif attr.type == ir.AttributeType.GRAPHS:
            yield from attr.as_graphs()
