"""Transposes pushed through a graph and cancelled, by algebra alone: a node moves to the other side of a transpose only where
the result is provably the same, and only where another transpose or a reduction further on gains by it. Any permutation will do.

A value of the graph may be *turned*: it then stands for `Transpose(source, perm)` of a value that is computed instead, and the
transpose is written only where a node needs the value itself. Linear in the number of nodes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir import provenance

Perm = tuple[int, ...]


@dataclass(frozen=True)
class Turned:
    """What a value stands for: `Transpose(source, perm)`."""

    source: ir.Value
    perm: Perm


def inverse(perm: Sequence[int]) -> Perm:
    """The permutation that undoes this one."""
    return tuple(int(i) for i in np.argsort(perm))


def is_identity(perm: Sequence[int]) -> bool:
    """Whether a permutation leaves everything in its place."""
    return list(perm) == list(range(len(perm)))


def restricted(perm: Sequence[int], kept: Sequence[int]) -> Perm:
    """The permutation of the axes that are left when of the turned value's axes only `kept` stay (in order)."""
    sources = [perm[a] for a in kept]
    order = sorted(sources)
    return tuple(order.index(s) for s in sources)


class Layout:
    """The state of one run of the pass; the carriers in `permuted.py` work on it."""

    def __init__(self, model: ir.Model, carriers: Mapping[str, Callable[..., Any]], shrinks: Callable[[ir.Node], bool]) -> None:
        self._carriers = carriers
        self._shrinks = shrinks
        self._root = model.graph
        self._turned: dict[ir.Value, Turned] = {}
        self._made: MutableMapping[tuple[ir.Value, Perm], ir.Value] = {}
        self._names = {v.name for g in (model.graph, *model.graph.subgraphs()) for n in g for v in n.outputs}
        self._names |= {v.name for g in (model.graph, *model.graph.subgraphs()) for v in (*g.inputs, *g.initializers.values())}
        self._gains: set[ir.Node] = set()
        self._node: ir.Node | None = None
        self._graph = model.graph

    def run(self) -> None:
        if not any(n.op_type == "Transpose" for n in ir.traversal.RecursiveGraphIterator(self._root)):
            return
        self._find_gains(self._root)
        self._walk(self._root, {})

    # where pushing pays

    def _find_gains(self, graph: ir.Graph) -> None:
        """Collect the nodes behind which a turned value meets a transpose, or is reduced."""
        for node in reversed(graph):
            for inner in _graphs_in(node):
                self._find_gains(inner)
            if node.op_type in self._carriers and node.domain == "" and (self._shrinks(node) or self._leads_on(node)):
                self._gains.add(node)

    def _leads_on(self, node: ir.Node) -> bool:
        return any(c.op_type == "Transpose" or c in self._gains for o in node.outputs for c, _ in o.uses())

    # the walk

    def _walk(self, graph: ir.Graph, made: dict[tuple[ir.Value, Perm], ir.Value]) -> None:
        outer = self._made, self._graph
        self._made, self._graph = ChainMap(made, self._made), graph
        for node in list(graph):
            self._node = node
            for i, v in enumerate(node.inputs):
                t = self._turned.get(v) if v is not None else None
                if t is not None and is_identity(t.perm):
                    node.replace_input_with(i, t.source)
            if node.op_type == "Transpose" and node.domain == "":
                self._transpose(node)
            elif not self._carry(node):
                self._settle(node)
            for inner in _graphs_in(node):
                self._walk(inner, {})
        self._node = None
        for i, v in enumerate(graph.outputs):
            if v in self._turned:
                graph.outputs[i] = self._as_output(v)
        for node in [n for n in reversed(graph) if n.op_type == "Transpose"]:
            if not node.outputs[0].uses() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)
        self._made, self._graph = outer

    def _transpose(self, node: ir.Node) -> None:
        x, y = node.inputs[0], node.outputs[0]
        if x is None or (x.shape is None and "perm" not in node.attributes):
            return
        perm = _perm_of(node)
        t = self._turned.get(x)
        source, perm = (t.source, tuple(t.perm[p] for p in perm)) if t is not None else (x, perm)
        reshaped = self._reshaped(source, perm)
        if reshaped is not None:
            source, perm = reshaped, tuple(range(len(perm)))
        elif t is None:
            self._made.setdefault((source, perm), y)
        self._turned[y] = Turned(source, perm)

    def _reshaped(self, x: ir.Value, perm: Perm) -> ir.Value | None:
        """`Transpose(x, perm)` as a reshape, where only axes of size 1 move and `x` comes out of a reshape itself."""
        node = x.producer()
        if node is None or node.op_type not in ("Reshape", "Unsqueeze") or x.shape is None or not keeps_order(x.shape, perm):
            return None
        sizes = [x.shape[p] for p in perm]
        if sum(not isinstance(s, int) for s in sizes) > 1 or 0 in sizes or node.inputs[0] in self._turned:
            return None
        key = (x, perm)
        if key not in self._made:
            shape = self.constant(np.array([s if isinstance(s, int) else -1 for s in sizes], np.int64), f"{x.name}.shape")
            self._made[key] = self.write("Reshape", [node.inputs[0], shape], x, ir.Shape(sizes), "turned")
        return self._made[key]

    def _carry(self, node: ir.Node) -> bool:
        """Move the node before its inputs' transposes; False where it must stay."""
        carrier = self._carriers.get(node.op_type) if node.domain == "" else None
        if carrier is None or node not in self._gains or not any(v in self._turned for v in node.inputs):
            return False
        perms = carrier(self, node)
        if perms is None:
            return False
        for o, perm in zip(node.outputs, perms, strict=True):
            if perm is not None and not is_identity(perm):
                self._turn(o, perm)
        return True

    def _turn(self, value: ir.Value, perm: Perm) -> None:
        """Let what uses the value use one that stands for it, now that its node computes it turned."""
        stand_in = ir.Value(name=value.name, type=value.type, shape=value.shape)
        value.replace_all_uses_with(stand_in, replace_graph_outputs=True)
        self._turned[stand_in] = Turned(value, perm)
        if value.shape is not None:
            value.shape = ir.Shape([value.shape[i] for i in inverse(perm)])

    def _settle(self, node: ir.Node) -> None:
        """Give the node the values that its inputs stand for."""
        for i, v in enumerate(node.inputs):
            if v is not None and v in self._turned:
                node.replace_input_with(i, self.plain(v))

    # what carriers use

    def turned(self, value: ir.Value | None) -> Turned | None:
        """What a value stands for, None for one that is computed itself."""
        return self._turned.get(value) if value is not None else None

    def plain(self, value: ir.Value) -> ir.Value:
        """The value itself, written as a transpose where it is turned."""
        t = self._turned.get(value)
        return value if t is None else self.transposed(t.source, t.perm)

    def transposed(self, source: ir.Value, perm: Perm) -> ir.Value:
        """`Transpose(source, perm)`, written once in a graph; of a constant, a constant that looks at it another way."""
        if is_identity(perm):
            return source
        key = (source, perm)
        if key not in self._made:
            if source.const_value is not None:
                self._made[key] = self.constant(source.const_value.numpy().transpose(perm), f"{source.name}.transpose", source)
            else:
                shape = None if source.shape is None else ir.Shape([source.shape[p] for p in perm])
                attributes = [ir.AttrInt64s("perm", list(perm))]
                self._made[key] = self.write("Transpose", [source], source, shape, "transpose", attributes)
        return self._made[key]

    def placed(self, value: ir.Value, perm: Perm) -> ir.Value | None:
        """An operand for a node whose result is turned by `perm`: what broadcasts there as `value` does in the result.

        None where its rank is not known.
        """
        t = self._turned.get(value)
        shape = value.shape
        if t is None and shape is None:
            return None
        rank = len(t.perm) if t is not None else len(shape)  # type: ignore[arg-type]
        missing = len(perm) - rank
        if t is not None:
            if (*range(missing), *(p + missing for p in t.perm)) == perm:
                return t.source
            value = self.plain(value)
            shape = value.shape
        if rank == 0 or (shape is not None and all(s == 1 for s in shape)):
            return value
        back = inverse(perm)
        own = tuple(b - missing for b in back if b >= missing)
        moved = self.transposed(value, own)
        added = [i for i, b in enumerate(back) if b < missing]
        if added == list(range(missing)):
            return moved  # broadcasting adds leading axes by itself
        lead = next(i for i, b in enumerate(back) if b >= missing)
        return self.unsqueezed(moved, [a - lead for a in added if a > lead])

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
        """A new initializer, made from that of `source`."""
        label = self._unique(name)
        tensor = ir.tensor(array, name=label)
        if source is not None:
            provenance.inherit_state(tensor, [source.const_value])
        made = ir.Value(name=label, type=ir.TensorType(tensor.dtype), shape=ir.Shape(list(array.shape)), const_value=tensor)
        self._root.register_initializer(made)
        return made

    def write(
        self, op_type: str, inputs: Sequence[ir.Value | None], like: ir.Value, shape: ir.Shape | None, suffix: str,
        attributes: Sequence[ir.Attr] = (),
    ) -> ir.Value:  # fmt: skip
        """A new node before the current one (at the end of the graph behind the last), of the dtype of `like`."""
        node = ir.Node("", op_type, inputs, attributes)
        out = node.outputs[0]
        out.name = node.name = self._unique(f"{like.name}.{suffix}")
        out.type, out.shape = like.type, shape
        made_by = like.producer()
        if made_by is not None:
            node.metadata_props.update(made_by.metadata_props)
        if self._node is not None:
            self._graph.insert_before(self._node, [node])
        else:
            self._graph.append(node)
        return out

    def _as_output(self, value: ir.Value) -> ir.Value:
        """The value itself under the output's name."""
        t = self._turned[value]
        name = value.name
        shape = None if t.source.shape is None else ir.Shape([t.source.shape[p] for p in t.perm])
        for v in (value, t.source):
            if v.name == name:
                v.name = self._unique(f"{name}.turned")
        kind, attributes = ("Identity", []) if is_identity(t.perm) else ("Transpose", [ir.AttrInt64s("perm", list(t.perm))])
        made = self.write(kind, [t.source], value, shape, "output", attributes)
        made.name = name
        return made

    def _unique(self, name: str) -> str:
        label, n = name, 0
        while label in self._names:
            n += 1
            label = f"{name}_{n}"
        self._names.add(label)
        return label


def keeps_order(shape: ir.Shape | Sequence[Any], perm: Sequence[int]) -> bool:
    """Whether a permutation moves axes of size 1 only."""
    moved = [p for p in perm if shape[p] != 1]
    return moved == sorted(moved)


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
