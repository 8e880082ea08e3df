"""Takes a model from one opset to another: every node steps through its operator's versions until it stands at the target's.

A step is an adapter, or nothing where the schemas say that nothing changed. What an adapter writes goes on from the version
that it was written at. Down below an operator's first version goes its expansion. All nodes are looked at before anything
is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported, merge
from onnxbridge.hub import places
from onnxbridge.hub.adapters import decompose, down, up, versions
from onnxbridge.hub.adapters.complete import bodies_of, complete, type_body
from onnxbridge.hub.adapters.shapes import FIXED, NUMBERS, known, remember
from onnxbridge.hub.builder import Builder
from onnxbridge.hub.graphs import every_graph
from onnxbridge.hub.opset import OPSET
from onnxbridge.hub.schemas import plain
from onnxbridge.lowering import Call, Ref, bind
from onnxbridge.rules import Rule, Rules

_DOMAINS = ("", "ai.onnx")
_DEEPEST = 20


class _Itself(dict[Any, Any]):
    """Values of a walk in place: every value stands for itself."""

    def __missing__(self, key: Any) -> Any:
        return key


class Walk:
    """One conversion of one model, in place."""

    def __init__(self, model: ir.Model, to: int) -> None:
        self._model = model
        self._to = self._target = to
        self._names = {v.name for g in every_graph(model) for v in _values(g) if v.name}
        self._node_names = {n.name for g in every_graph(model) for n in g if n.name}
        self._writers: dict[int, Builder] = {}
        self._problems: list[Problem] = []
        self._function = False
        self._depth = 0
        self._there: set[ir.Graph] = set()  # graphs that an adapter wrote at the target's opset, or that were brought there
        self._put_in: list[ir.Node] = []
        self.direction = ""
        if model.ir_version < 4:  # every tensor had to be an input as well, without being meant as one
            for value in model.graph.inputs:
                value.meta[FIXED] = value.const_value is not None

    def run(self) -> None:
        """Convert every graph.

        Raises:
            ConversionError: with every node in the way; the model is then half converted and must be thrown away.
        """
        for owner in (self._model.graph, *(f.graph for f in self._model.functions.values())):
            version = owner.opset_imports.get("", self._model.opset_imports.get("", self._to))
            self.direction = self.direction or f"opset {version} to opset {self._to}"
            self._function = owner is not self._model.graph
            self._writers = {}
            if self._changes(owner, version):
                if self._to < OPSET < version:  # expansions are written for the hub's versions
                    self._at(OPSET, owner, version)
                    version = OPSET
                if not self._problems:
                    self.graph(owner, version)
            if "" in owner.opset_imports or version != self._to:
                owner.opset_imports[""] = self._to
            self._keep_constants(owner)
        for value in (v for g in every_graph(self._model) for v in _values(g)):
            value.meta.pop(NUMBERS, None)
        if self._problems:
            raise ConversionError(self.direction, merge(self._problems))

    def _changes(self, owner: ir.Graph, version: int) -> bool:
        """Whether any operator in the graph differs between the two opsets."""
        found = {n.op_type for g in (owner, *owner.subgraphs()) for n in g if n.domain in _DOMAINS}
        return any((at := versions.since(op, version)) is None or at != versions.since(op, self._to) for op in found)

    def graph(self, graph: ir.Graph, version: int) -> None:
        """Convert the nodes of a graph, and before each those of the graphs inside it."""
        if graph in self._there:
            return
        for node in list(graph):
            # what is written out takes its graphs along, and they are converted then
            written_out = node.domain in _DOMAINS and node.op_type in versions.names() and versions.first(node.op_type) > self._to
            type_body(node, version)
            for inner in () if written_out else bodies_of(node):
                self.graph(inner, version)
                if self._to == self._target:
                    self._there.add(inner)
            if node.domain in _DOMAINS:
                self._node(graph, node, version)

    def _node(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        complete(node, version)
        if version > self._to:
            remember(node)
        try:
            self._step(graph, node, version)
        except Unsupported as refusal:
            why = refusal
            self._forget()
            try:
                done = self._otherwise(graph, node, version)
            except Unsupported as second:
                done, why = False, second
            if not done:
                self._forget()
                self._problem(node, version, why)
        except ConversionError as inner:
            self._forget()
            self._problems += inner.problems

    def _otherwise(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """The ways around a refusal: the constant that the node gives, Casts around it, its expansion."""
        if self._constant(graph, node, min(version, OPSET)):
            return True
        if version <= self._to:
            return False
        older = versions.since(node.op_type, self._to)
        cast = None if older is None else decompose.cast_around(self._writer(version), node, older)
        if cast is not None:
            self._replace(graph, node, cast, version)
            return True
        self._forget()
        since, hub = versions.since(node.op_type, version), versions.since(node.op_type, OPSET)
        if since is None or hub is None or since > hub or any(a.is_ref() for a in node.attributes.values()):
            return False
        if since == hub:
            return self._written_out(graph, node, since, version)
        if not decompose.covers(node.op_type):
            return False
        # an expansion is written for the hub's version, so the node goes up there first
        target, self._to, self._put_in = self._to, OPSET, [node]
        try:
            self._climb(graph, node, version)
        finally:
            self._to, put_in, self._put_in = target, self._put_in, []
        for each in [n for n in put_in if n.graph is graph]:
            if each.op_type != node.op_type:
                self._node(graph, each, OPSET)
            elif not self._written_out(graph, each, hub, OPSET):
                return False
        return True

    def _written_out(self, graph: ir.Graph, node: ir.Node, since: int, version: int) -> bool:
        """Whether an expansion or a definition that does not come back to the operator itself took the node's place."""
        if not decompose.covers(node.op_type):
            return False
        self._decompose(graph, node, since, version)
        return True

    def _step(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        """Bring a node to the target's opset; what the builder refuses (a dtype, a shape) counts as not covered."""
        try:
            (self._climb if version <= self._to else self._descend)(graph, node, version)
        except (TypeError, ValueError) as error:
            raise Unsupported(str(error).splitlines()[0]) from error

    def _forget(self) -> None:
        """Throw away what an adapter had written before it refused."""
        for writer in self._writers.values():
            for node in writer.take():
                _let_go(node)

    def _problem(self, node: ir.Node, version: int, reason: Unsupported) -> None:
        text = f"{node.op_type} of opset {version}: {reason.reason}"
        self._problems.append(Problem(node.op_type, text, reason.hint, (places.read(node),)))

    def _climb(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        old = versions.since(node.op_type, version)
        if old is None:
            raise Unsupported(_unknown(node.op_type, version))
        for new in (v for v in versions.history(node.op_type) if old < v <= self._to):
            adapter = up.get(node.op_type, new)
            if adapter is not None:
                self._adapt(graph, node, adapter, old, new)
                return
            reason = versions.upward(node, old, new)
            if reason:
                raise Unsupported(f"{reason} with opset {new}")
            old = new
        if versions.since(node.op_type, version) != old:
            self._check_dtypes(graph, node, old)

    def _descend(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        new = versions.since(node.op_type, version)
        if new is None:
            raise Unsupported(_unknown(node.op_type, version))
        steps = [v for v in versions.history(node.op_type) if v > self._to]
        if versions.first(node.op_type) > self._to and not any(down.get(node.op_type, v - 1) for v in steps):
            self._decompose(graph, node, new, version)
            return
        start = new
        older = sorted((v for v in versions.history(node.op_type) if versions.first(node.op_type) <= v < new), reverse=True)
        for old in [*older, None]:
            if new <= self._to:
                break
            adapter = down.get(node.op_type, new - 1)
            if adapter is not None:
                self._adapt(graph, node, adapter, new, new - 1)
                return
            if old is None:
                raise Unsupported(f"it came with opset {new}")
            reason, drop = versions.downward(node, new, old)
            if reason:
                raise Unsupported(reason)
            for name in drop:
                del node.attributes[name]
            new = old
        if new != start:
            self._check_dtypes(graph, node, new)

    def _check_dtypes(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        reason = versions.wrong_dtype(node, version)
        if not reason:
            return
        cast = decompose.cast_around(self._writer(self._to), node, version)
        if cast is None:
            raise Unsupported(reason)
        self._replace(graph, node, cast, self._to)

    def _decompose(self, graph: ir.Graph, node: ir.Node, version: int, opset: int) -> None:
        """Write the operator in others, at the version that those are of; the graphs inside it are brought there first."""
        if self._constant(graph, node, min(version, OPSET)):
            return
        if self._depth > _DEEPEST:
            raise Unsupported(f"it came with opset {version}, and its definition does not end in older operators")
        self._depth += 1
        try:
            if inner := bodies_of(node):
                body, written_at = decompose.function_body(node, version)
                if body is None:
                    raise Unsupported(f"it came with opset {versions.first(node.op_type)}")
                for part in inner:
                    self._at(written_at, part, opset)
            nodes, results, written_at = decompose.expansion(node, version, self._names)
            self._put(graph, node, nodes, results, written_at)
        finally:
            self._depth -= 1

    def _constant(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """Put constants in the place of a node whose results are known already."""
        results = [known(v) for v in node.outputs]
        if not results or any(r is None for r in results):
            return False
        self._replace(graph, node, tuple(results), version)
        return True

    def _at(self, to: int, graph: ir.Graph, version: int) -> None:
        """Convert one graph to another opset than the whole model's."""
        self._to, target = to, self._to
        try:
            self.graph(graph, version)
        finally:
            self._to = target

    def _adapt(self, graph: ir.Graph, node: ir.Node, adapter: Rule, version: int, to: int) -> None:
        self._replace(graph, node, results_of(node, adapter, version, self._writer(to)), to)

    def _writer(self, version: int) -> Builder:
        if version not in self._writers:
            self._writers[version] = Builder(version, self._names, known)
        return self._writers[version]

    def _replace(self, graph: ir.Graph, node: ir.Node, results: Any, version: int) -> None:
        self._put(graph, node, [], results if isinstance(results, tuple) else (results,), version)

    def _put(self, graph: ir.Graph, node: ir.Node, nodes: list[ir.Node], results: tuple[Any, ...], version: int) -> None:
        """Put what was written in the node's place; its results take over the names, types and uses of the node's outputs."""
        writer = self._writer(version)
        stem = next((v.name for v in node.outputs if v.name), node.name or node.op_type)
        written = nodes or writer.take()
        made = {id(v) for n in written for v in n.outputs}
        pairs: list[tuple[ir.Value, ir.Value]] = []
        for i, output in enumerate(node.outputs):
            if i >= len(results) or results[i] is None:
                if output.uses() or output.is_graph_output():
                    raise Unsupported(f"opset {version} does not give output {i}")
                continue
            if not output.name:
                continue
            result = writer.constant(results[i])
            if id(result) not in made or any(result is r for _, r in pairs):
                result = writer.Identity(result)
                written += writer.take()
            pairs.append((output, result))
        written = _alive(written, {id(r) for _, r in pairs})
        for output, result in pairs:
            _take_over(output, result)
        for new in written:
            for value in new.outputs:
                # ONNX Runtime crashes where a loop leaves out a state that it carries
                if not value.name and (value.uses() or value.is_graph_output() or bodies_of(new)):
                    value.name = writer.unique(f"{stem}/{new.op_type}")
                elif not value.name:
                    value.name = ""
            new.name = node.name if new is written[-1] and node.name else self._node_name(f"{node.name or stem}/{new.op_type}")
            for part in bodies_of(new):
                if part in self._there:
                    continue
                for inside in (part, *part.subgraphs()):
                    for each in inside:
                        each.name = self._node_name(f"{node.name or stem}/{each.op_type}")
            new.metadata_props.update(node.metadata_props)
        graph.insert_before(node, written)
        graph.remove(node, safe=True)
        self._put_in += written
        for new in written:
            type_body(new, version)
            for inner in bodies_of(new):
                self.graph(inner, version)
            if new.domain in _DOMAINS:
                self._node(graph, new, version)

    def _node_name(self, name: str) -> str:
        """The name itself where no node has it, otherwise the name with a number."""
        label, n = name, 0
        while label in self._node_names:
            n += 1
            label = f"{name}_{n}"
        self._node_names.add(label)
        return label

    def _keep_constants(self, owner: ir.Graph) -> None:
        """Give the constants that adapters made a home: the main graph's initializers, or nodes at the head of a function."""
        wanted: dict[int, ir.Value] = {}
        for graph in (owner, *owner.subgraphs()):
            for node in graph:
                for v in node.inputs:
                    if v is not None and v.const_value is not None and v.producer() is None and not v.is_initializer():
                        wanted.setdefault(id(v), v)
        for value in wanted.values():
            if not self._function:
                owner.register_initializer(value)
                continue
            assert value.const_value is not None
            constant = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
            constant.name = self._node_name(f"{value.name}/Constant")
            constant.outputs[0].name, constant.outputs[0].type = value.name, value.type
            value.replace_all_uses_with(constant.outputs[0])
            owner.insert_before(owner[0], constant)


def results_of(node: ir.Node, adapter: Rule, version: int, writer: Builder) -> Any:
    """What an adapter writes for a node of one version."""
    inputs: Iterable[Any] = (None if v is None else Ref(v) for v in node.inputs)
    attrs = {a.name: _attribute(a) for a in node.attributes.values() if a.name != "consumed_inputs"}
    used = tuple(v if v.name and (v.uses() or v.is_graph_output()) else None for v in node.outputs)
    call = Call(node.op_type, tuple(inputs), attrs, used, places.read(node), versions.binding(node.op_type, version))
    args, keywords = bind(adapter, call, _Itself(), _Static(), _NO_RULES)
    return adapter.lower(writer, *args, **keywords)


class _Static:
    """What the walker's binding asks for the value of an input."""

    def static(self, key: Any, value: Any) -> np.ndarray[Any, Any] | None:
        return known(value)


def _attribute(attr: ir.Attr) -> Any:
    if attr.is_ref():
        raise Unsupported(f"the attribute {attr.name!r} is set by the function's caller", "inline the model's functions first")
    return attr.as_graph() if attr.type == ir.AttributeType.GRAPH else plain(attr)


def _alive(nodes: list[ir.Node], results: set[int]) -> list[ir.Node]:
    """The nodes without those that nothing uses; these let go of their inputs."""
    kept = []
    for node in reversed(nodes):
        if any(id(v) in results or v.uses() for v in node.outputs):
            kept.append(node)
        else:
            _let_go(node)
    return kept[::-1]


def _let_go(node: ir.Node) -> None:
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)
    for graph in bodies_of(node):
        for inner in graph:
            _let_go(inner)


def _take_over(old: ir.Value, new: ir.Value) -> None:
    name = old.name
    if old.type is not None:
        new.type = old.type
    if old.shape is not None:
        new.shape = old.shape
    new.metadata_props.update(old.metadata_props)
    new.meta.update(old.meta)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _unknown(op: str, version: int) -> str:
    first = min(versions.history(op), default=None)
    if first is None:
        return "ai.onnx has no such operator"
    return f"it came with opset {first}" if first > version else f"opset {version} has given it up"


_NO_RULES = Rules("hub.adapters")
