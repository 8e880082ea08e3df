"""Takes a model from one opset to another: every node steps through its operator's versions until it stands at the target's.

A step is an adapter, or nothing where the schemas say that nothing changed. What an adapter writes goes on from the version
that it was written at. Down below an operator's first version goes its expansion. All nodes are looked at before anything
is refused. ai.onnx.ml goes the same way where it is asked to; its adapters write what they need of ai.onnx at the hub's opset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported
from onnxbridge.hub.decompositions.microsoft import foreign
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of, every_graph
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.replacement import let_go, passes_on, replace
from onnxbridge.hub.opset import decompose_for_opset, schema_versions, written_nodes
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.apply_adapter import results_of
from onnxbridge.hub.opset.infer_types import complete, type_body
from onnxbridge.hub.opset.known_values import FIXED, NUMBERS, known, remember
from onnxbridge.lowering import Problems
from onnxbridge.rules import Rule

ML = "ai.onnx.ml"
_DOMAINS = ("", "ai.onnx")
_DEEPEST = 20


class Walk:
    """One conversion of one model, in place.

    `ml` is the version of ai.onnx.ml to bring its operators to, None to leave them as they are. `losses` takes a problem for
    each lossy step that was made; without it there are none.
    """

    def __init__(self, model: ir.Model, to: int, ml: int | None = None, losses: list[Problem] | None = None) -> None:
        self._model = model
        self._to = self._target = to
        self._ml = ml
        self._names = {v.name for g in every_graph(model) for v in _values(g) if v.name}
        self._node_names = {n.name for g in every_graph(model) for n in g if n.name}
        self._writers: dict[tuple[int, int], Builder] = {}
        self._problems = Problems("")
        self._losses = losses
        self._lossy = False
        self._lost: list[str] = []
        self._outer: tuple[str, int] | None = None
        self._depth = 0
        self._there: set[ir.Graph] = set()  # graphs that an adapter wrote at the target's opset, or that were brought there
        self._put_in: list[ir.Node] = []
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
            self._ml_version = owner.opset_imports.get(ML, self._model.opset_imports.get(ML, 1))
            if not self._problems.direction:
                trees = "" if self._ml is None else f"ai.onnx.ml {self._ml_version} to {self._ml}"
                opsets = f"opset {version} to opset {self._to}"
                self._problems.direction = trees if trees and version == self._to else ", ".join(filter(None, (opsets, trees)))
            self._writers = {}
            if self._changes(owner, version):
                idle = written_nodes.idle_initializers(owner)
                if self._to < OPSET < version:  # expansions are written for the hub's versions
                    self._at(OPSET, owner, version)
                    version = OPSET
                if not self._problems.found:
                    self.graph(owner, version)
                written_nodes.drop_initializers(owner, written_nodes.idle_initializers(owner) - idle)
            if "" in owner.opset_imports or version != self._to:
                owner.opset_imports[""] = self._to
            if self._ml is not None:
                self._import(owner)
            written_nodes.keep_constants(owner, owner is not self._model.graph, self._names, self._node_names)
        for value in (v for g in every_graph(self._model) for v in _values(g)):
            if NUMBERS in value.meta:
                del value.meta[NUMBERS]
        self._problems.report()

    def _changes(self, owner: ir.Graph, version: int) -> bool:
        """Whether any operator in the graph differs between the two opsets."""
        nodes = [n for g in (owner, *owner.subgraphs()) for n in g if n.domain in _DOMAINS]
        found = {schema_versions.name_of(n) for n in nodes if not foreign(n)}
        if self._ml is not None and any(n.domain == ML for g in (owner, *owner.subgraphs()) for n in g):
            return True
        since = schema_versions.since
        return any((at := since(op, version)) is None or at != since(op, self._to) for op in found)

    def _import(self, owner: ir.Graph) -> None:
        """Name the domains that are used once ai.onnx.ml has been converted: its adapters may have brought in the other one."""
        used = {n.domain for g in (owner, *owner.subgraphs()) for n in g}
        if ML in owner.opset_imports and self._ml is not None:
            owner.opset_imports[ML] = self._ml
        if used & set(_DOMAINS):
            owner.opset_imports[""] = self._to

    def graph(self, graph: ir.Graph, version: int, written: bool = False) -> None:
        """Convert the nodes of a graph, which may have been `written` here, and before each those of the graphs inside it."""
        if graph in self._there:
            return
        for node in list(graph):
            # what is written out takes its graphs along, and they are converted then
            known = node.domain in _DOMAINS and schema_versions.history(node.op_type)
            written_out = known and schema_versions.first(node.op_type) > self._to
            type_body(node, version)
            for inner in () if written_out else bodies_of(node):
                self.graph(inner, version, written)
                if self._to == self._target:
                    self._there.add(inner)
            self._visit(graph, node, version, self._ml_version, written)

    def _visit(self, graph: ir.Graph, node: ir.Node, version: int, ml_version: int, written: bool = False) -> None:
        """Convert a node of a domain that is to be."""
        if node.domain in _DOMAINS:
            if not foreign(node):
                self._node(graph, node, version, written)
        elif node.domain == ML and self._ml is not None:
            self._node(graph, node, ml_version)
        elif node.domain == ML:
            complete(node, ml_version)  # what stays as it is tells its readers what it gives

    def _goal(self, node: ir.Node) -> int:
        return self._ml if node.domain == ML and self._ml is not None else self._to

    def _node(self, graph: ir.Graph, node: ir.Node, version: int, written: bool = False) -> None:
        """Convert a node; the dtypes of one that was `written` here are checked even where its operator stays as it is."""
        outer, lossy = self._outer, self._lossy
        self._outer, self._lossy = outer or (node.op_type, version), False
        try:
            with self._problems:
                self._convert(graph, node, version, written)
        finally:
            self._outer, self._lossy = outer, lossy

    def _convert(self, graph: ir.Graph, node: ir.Node, version: int, written: bool) -> None:
        try:
            complete(node, version)
            if version > self._goal(node):
                remember(node)
            why = self._attempt(graph, node, version)
            if why is not None and self._losses is not None and node.graph is graph:
                self._lossy = True
                why = self._attempt(graph, node, version)
            if why is not None:
                self._problem(node, version, why)
            elif written and node.graph is graph:
                self._check_written(graph, node)
        except ConversionError:
            self._forget()
            raise

    def _attempt(self, graph: ir.Graph, node: ir.Node, version: int) -> Unsupported | None:
        """Convert one node; why it cannot be, where neither its adapters nor the ways around them do."""
        try:
            self._step(graph, node, version)
            return None
        except Unsupported as refusal:
            why = refusal
        self._forget()
        try:
            done = self._otherwise(graph, node, version)
        except Unsupported as second:
            done, why = False, second
        except TypeError as error:  # the builder's, of a node that no dtype suits
            done, why = False, Unsupported(str(error).splitlines()[0])
        if done:
            return None
        self._forget()
        return why

    def _otherwise(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """The ways around a refusal: the constant that the node gives, Casts around it, its expansion."""
        if node.domain == ML:
            return False
        if self._constant(graph, node, min(version, OPSET)):
            return True
        if version <= self._to:
            return False
        older = schema_versions.since(node.op_type, self._to)
        cast = None if older is None else decompose_for_opset.cast_around(self._writer(version), node, older, self._lossy)
        if cast is not None:
            self._replace(graph, node, cast, version)
            return True
        self._forget()
        since, hub = schema_versions.since(node.op_type, version), schema_versions.since(node.op_type, OPSET)
        if since is None or hub is None or since > hub or any(a.is_ref() for a in node.attributes.values()):
            return False
        if since == hub:
            return self._written_out(graph, node, since, version)
        if not decompose_for_opset.covers(node.op_type):
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
        if not decompose_for_opset.covers(node.op_type):
            return False
        self._decompose(graph, node, since, version)
        return True

    def _step(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        """Bring a node to the target's opset; what the builder refuses (a dtype, a shape) counts as not covered."""
        try:
            (self._climb if version <= self._goal(node) else self._descend)(graph, node, version)
        except (TypeError, ValueError) as error:
            raise Unsupported(str(error).splitlines()[0]) from error

    def _forget(self) -> None:
        """Throw away what an adapter had written before it refused."""
        self._lost = []
        for writer in self._writers.values():
            for node in writer.take():
                let_go(node)

    def _loses(self, what: str) -> None:
        """What a writer does when an adapter says that the next step is lossy."""
        if not self._lossy:
            raise Unsupported(what, "allow lossy steps to have it so")
        self._lost.append(what)

    def _problem(self, node: ir.Node, version: int, reason: Unsupported) -> None:
        self._problems.found.append(self._about(node, version, reason.reason, reason.hint))

    def _about(self, node: ir.Node, version: int, reason: str, hint: str = "") -> Problem:
        """What there is to say of a node, under the name of the operator of the model that it was written for."""
        op, at = self._outer or (node.op_type, version)
        domain = "ai.onnx.ml" if node.domain == ML else "opset"
        inside = "" if op == node.op_type else f" needs {node.op_type}"
        return Problem(op, f"{op} of {domain} {at}{inside}: {reason}", hint, (source_locations.read(node),))

    def _climb(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        name, goal = schema_versions.name_of(node), self._goal(node)
        old = schema_versions.since(name, version)
        if old is None:
            raise Unsupported(_unknown(name, version))
        for new in (v for v in schema_versions.history(name) if old < v <= goal):
            adapter = up.get(name, new)
            if adapter is not None:
                self._adapt(graph, node, adapter, old, new)
                return
            reason = schema_versions.upward(node, old, new)
            if reason:
                raise Unsupported(f"{reason} with opset {new}")
            old = new
        if schema_versions.since(name, version) != old:
            self._check_dtypes(graph, node, old)

    def _descend(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        name, goal = schema_versions.name_of(node), self._goal(node)
        new = schema_versions.since(name, version)
        if new is None:
            raise Unsupported(_unknown(name, version))
        steps = [v for v in schema_versions.history(name) if v > goal]
        if schema_versions.first(name) > goal and not any(down.get(name, v - 1) for v in steps):
            self._decompose(graph, node, new, version)
            return
        start = new
        older = sorted((v for v in schema_versions.history(name) if schema_versions.first(name) <= v < new), reverse=True)
        for old in [*older, None]:
            if new <= goal:
                break
            adapter = down.get(name, new - 1)
            if adapter is not None:
                for part in bodies_of(node) if schema_versions.first(name) > goal else ():
                    self._at(new - 1, part, version)
                self._adapt(graph, node, adapter, new, new - 1)
                return
            if old is None:
                raise Unsupported(f"it came with opset {new}")
            reason, drop = schema_versions.downward(node, new, old)
            if reason:
                raise Unsupported(reason)
            for attribute in drop:
                del node.attributes[attribute]
            new = old
        if new != start:
            self._check_dtypes(graph, node, new)

    def _check_written(self, graph: ir.Graph, node: ir.Node) -> None:
        """Cast around a node that was written for the goal where that takes no such dtypes."""
        since = schema_versions.since(schema_versions.name_of(node), self._to)
        try:
            if since is not None and self._to <= OPSET:
                self._check_dtypes(graph, node, since)
        except Unsupported as why:
            self._problem(node, self._to, why)

    def _check_dtypes(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        reason = schema_versions.wrong_dtype(node, version)
        if not reason:
            return
        cast = decompose_for_opset.cast_around(self._writer(self._to), node, version, self._lossy) if node.domain != ML else None
        if cast is None:
            raise Unsupported(reason)
        self._replace(graph, node, cast, self._to)

    def _decompose(self, graph: ir.Graph, node: ir.Node, version: int, opset: int) -> None:
        """Write the operator in others, at the version that those are of; the graphs inside it are brought there first."""
        if node.domain == ML:
            raise Unsupported(f"it came with ai.onnx.ml {version}")
        if self._constant(graph, node, min(version, OPSET)):
            return
        if self._depth > _DEEPEST:
            raise Unsupported(f"it came with opset {version}, and its definition does not end in older operators")
        self._depth += 1
        try:
            if inner := bodies_of(node):
                body, written_at = decompose_for_opset.function_body(node, version)
                if body is None:
                    raise Unsupported(f"it came with opset {schema_versions.first(node.op_type)}")
                for part in inner:
                    self._at(written_at, part, opset)
            nodes, results, written_at = decompose_for_opset.expansion(node, version, self._names)
            self._put(graph, node, nodes, results, written_at)
        finally:
            self._depth -= 1

    def _constant(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """Put constants in the place of a node whose results are known already."""
        if passes_on(node):  # what it would be written as again
            return False
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
        at, ml = (OPSET, to) if node.domain == ML else (to, 0)
        self._replace(graph, node, results_of(node, adapter, version, self._writer(at, ml)), at, ml)

    def _writer(self, version: int, ml: int = 0) -> Builder:
        if (version, ml) not in self._writers:
            domains = {ML: ml} if ml else {}
            self._writers[version, ml] = Builder(version, self._names, known, domains=domains, loses=self._loses)
        return self._writers[version, ml]

    def _replace(self, graph: ir.Graph, node: ir.Node, results: Any, version: int, ml: int = 0) -> None:
        self._put(graph, node, [], results if isinstance(results, tuple) else (results,), version, ml)

    def _put(
        self, graph: ir.Graph, node: ir.Node, nodes: list[ir.Node], results: tuple[Any, ...], version: int, ml: int = 0
    ) -> None:
        """Put what was written in the node's place; its results take over the names, types and uses of the node's outputs."""
        writer = self._writer(version, ml)
        name = written_nodes.namer(node, writer, self._node_names, self._there)
        written = replace(node, nodes or writer.take(), results, writer, name=name)
        self._put_in += written
        if self._losses is not None:
            self._losses += [self._about(node, version, what) for what in self._lost]
        self._lost = []
        for new in written:
            type_body(new, version)
            for inner in bodies_of(new):
                self.graph(inner, version, written=True)
                if self._to == self._target:
                    self._there.add(inner)
            self._visit(graph, new, version, ml or self._ml_version, written=True)


def _values(graph: ir.Graph) -> Iterable[ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _unknown(name: str, version: int) -> str:
    first = min(schema_versions.history(name), default=None)
    if first is None:
        return "ai.onnx has no such operator"
    return f"it came with opset {first}" if first > version else f"opset {version} has given it up"
