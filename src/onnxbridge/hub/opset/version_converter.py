"""Converts a model from one opset to another: each node is converted through the versions of its operator to the target.

A step is an adapter, or nothing if the schemas are compatible. Nodes that an adapter writes continue from the version they are
written at. Below an operator's first version it is decomposed. All nodes are processed before problems are reported.
ai.onnx.ml is converted in the same way on request; its adapters write ai.onnx operators at the hub's opset.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported
from onnxbridge.hub.decompositions.microsoft import is_decomposable
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.graphs import bodies_of, every_graph, values_in
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.replacement import detach, is_identity, replace
from onnxbridge.hub.opset import decompose_for_opset, schema_versions, written_nodes
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.hub.opset.apply_adapter import results_of
from onnxbridge.hub.opset.infer_types import complete, type_body
from onnxbridge.hub.opset.known_values import FIXED, STORED, known, store_constants
from onnxbridge.lowering import Problems
from onnxbridge.rules import Rule

ML = "ai.onnx.ml"
_DOMAINS = ("", "ai.onnx")
_MAX_DEPTH = 20


class VersionConverter:
    """Converts one model in place.

    `ml` is the target version of ai.onnx.ml, None to leave it unchanged. `losses` collects a problem for each lossy step;
    without it lossy steps are not allowed.
    """

    def __init__(self, model: ir.Model, to: int, ml: int | None = None, losses: list[Problem] | None = None) -> None:
        self._model = model
        self._current_target = self._target = to
        self._ml = ml
        self._names = {v.name for g in every_graph(model) for v in values_in(g) if v.name}
        self._node_names = {n.name for g in every_graph(model) for n in g if n.name}
        self._writers: dict[tuple[int, int], Builder] = {}
        self._problems = Problems("")
        self._losses = losses
        self._lossy = False
        self._step_losses: list[str] = []
        self._source_operator: tuple[str, int] | None = None
        self._depth = 0
        self._converted: set[ir.Graph] = set()  # subgraphs already at the target's opset
        self._inserted: list[ir.Node] = []
        if model.ir_version < 4:  # every initializer had to be declared as an input
            for value in model.graph.inputs:
                value.meta[FIXED] = value.const_value is not None

    def run(self) -> None:
        """Convert every graph.

        Raises:
            ConversionError: with a problem for every node that cannot be converted; the model is then partly converted.
        """
        for owner in (self._model.graph, *(f.graph for f in self._model.functions.values())):
            version = owner.opset_imports.get("", self._model.opset_imports.get("", self._current_target))
            self._ml_version = owner.opset_imports.get(ML, self._model.opset_imports.get(ML, 1))
            if not self._problems.direction:
                trees = "" if self._ml is None else f"ai.onnx.ml {self._ml_version} to {self._ml}"
                opsets = f"opset {version} to opset {self._current_target}"
                self._problems.direction = (
                    trees if trees and version == self._current_target else ", ".join(filter(None, (opsets, trees)))
                )
            self._writers = {}
            if self._changes(owner, version):
                unused = written_nodes.unused_initializers(owner)
                if self._current_target < OPSET < version:  # decompositions are written for the hub's versions
                    self._at(OPSET, owner, version)
                    version = OPSET
                if not self._problems.found:
                    self.graph(owner, version)
                written_nodes.drop_initializers(owner, written_nodes.unused_initializers(owner) - unused)
            if "" in owner.opset_imports or version != self._current_target:
                owner.opset_imports[""] = self._current_target
            if self._ml is not None:
                self._import(owner)
            written_nodes.register_constants(owner, owner is not self._model.graph, self._names, self._node_names)
        for value in (v for g in every_graph(self._model) for v in values_in(g)):
            if STORED in value.meta:
                del value.meta[STORED]
        self._problems.report()

    def _changes(self, owner: ir.Graph, version: int) -> bool:
        """Whether any operator of the graph has different versions at the two opsets."""
        nodes = [n for g in (owner, *owner.subgraphs()) for n in g if n.domain in _DOMAINS]
        found = {schema_versions.name_of(n) for n in nodes if not is_decomposable(n)}
        if self._ml is not None and any(n.domain == ML for g in (owner, *owner.subgraphs()) for n in g):
            return True
        since = schema_versions.since
        return any((at := since(op, version)) is None or at != since(op, self._current_target) for op in found)

    def _import(self, owner: ir.Graph) -> None:
        """Update the opset imports after converting ai.onnx.ml, whose adapters may have added ai.onnx operators."""
        used = {n.domain for g in (owner, *owner.subgraphs()) for n in g}
        if ML in owner.opset_imports and self._ml is not None:
            owner.opset_imports[ML] = self._ml
        if used & set(_DOMAINS):
            owner.opset_imports[""] = self._current_target

    def graph(self, graph: ir.Graph, version: int, written: bool = False) -> None:
        """Convert the nodes of a graph, each after its subgraphs; `written`: the graph was written by an adapter."""
        if graph in self._converted:
            return
        for node in list(graph):
            # a decomposed node passes its subgraphs on, and they are converted then
            known = node.domain in _DOMAINS and schema_versions.history(node.op_type)
            decomposed = known and schema_versions.first(node.op_type) > self._current_target
            type_body(node, version)
            for inner in () if decomposed else bodies_of(node):
                self.graph(inner, version, written)
                if self._current_target == self._target:
                    self._converted.add(inner)
            self._visit(graph, node, version, self._ml_version, written)

    def _visit(self, graph: ir.Graph, node: ir.Node, version: int, ml_version: int, written: bool = False) -> None:
        """Convert a node if its domain is to be converted."""
        if node.domain in _DOMAINS:
            if not is_decomposable(node):
                self._node(graph, node, version, written)
        elif node.domain == ML and self._ml is not None:
            self._node(graph, node, ml_version)
        elif node.domain == ML:
            complete(node, ml_version)  # its consumers need the types of its outputs

    def _target_of(self, node: ir.Node) -> int:
        return self._ml if node.domain == ML and self._ml is not None else self._current_target

    def _node(self, graph: ir.Graph, node: ir.Node, version: int, written: bool = False) -> None:
        """Convert a node; if `written` by an adapter, its dtypes are checked even if its operator does not change."""
        outer, lossy = self._source_operator, self._lossy
        self._source_operator, self._lossy = outer or (node.op_type, version), False
        try:
            with self._problems:
                self._convert(graph, node, version, written)
        finally:
            self._source_operator, self._lossy = outer, lossy

    def _convert(self, graph: ir.Graph, node: ir.Node, version: int, written: bool) -> None:
        try:
            complete(node, version)
            if version > self._target_of(node):
                store_constants(node)
            why = self._try_convert(graph, node, version)
            if why is not None and self._losses is not None and node.graph is graph:
                self._lossy = True
                why = self._try_convert(graph, node, version)
            if why is not None:
                self._problem(node, version, why)
            elif written and node.graph is graph:
                self._check_written(graph, node)
        except ConversionError:
            self._discard()
            raise

    def _try_convert(self, graph: ir.Graph, node: ir.Node, version: int) -> Unsupported | None:
        """Convert a node by adapters or a fallback; returns the reason if neither works."""
        try:
            self._step(graph, node, version)
            return None
        except Unsupported as refusal:
            why = refusal
        self._discard()
        try:
            done = self._fallback(graph, node, version)
        except Unsupported as second:
            done, why = False, second
        except TypeError as error:  # from the builder, if no dtype is supported
            done, why = False, Unsupported(str(error).splitlines()[0])
        if done:
            return None
        self._discard()
        return why

    def _fallback(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """Fallbacks if no adapter applies: fold the node to a constant, cast around it, or decompose it."""
        if node.domain == ML:
            return False
        if self._constant(graph, node, min(version, OPSET)):
            return True
        if version <= self._current_target:
            return False
        older = schema_versions.since(node.op_type, self._current_target)
        cast = None if older is None else decompose_for_opset.cast_around(self._writer(version), node, older, self._lossy)
        if cast is not None:
            self._replace(graph, node, cast, version)
            return True
        self._discard()
        since, hub = schema_versions.since(node.op_type, version), schema_versions.since(node.op_type, OPSET)
        if since is None or hub is None or since > hub or any(a.is_ref() for a in node.attributes.values()):
            return False
        if since == hub:
            return self._try_decompose(graph, node, since, version)
        if not decompose_for_opset.can_decompose(node.op_type):
            return False
        # a decomposition is written for the hub's version, so the node is converted to that first
        target, self._current_target, self._inserted = self._current_target, OPSET, [node]
        try:
            self._upgrade(graph, node, version)
        finally:
            self._current_target, inserted, self._inserted = target, self._inserted, []
        for each in [n for n in inserted if n.graph is graph]:
            if each.op_type != node.op_type:
                self._node(graph, each, OPSET)
            elif not self._try_decompose(graph, each, hub, OPSET):
                return False
        return True

    def _try_decompose(self, graph: ir.Graph, node: ir.Node, since: int, version: int) -> bool:
        """Decompose the node if a decomposition exists; returns whether it did."""
        if not decompose_for_opset.can_decompose(node.op_type):
            return False
        self._decompose(graph, node, since, version)
        return True

    def _step(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        """Convert a node to the target's opset; errors of the builder (dtypes, shapes) count as unsupported."""
        try:
            (self._upgrade if version <= self._target_of(node) else self._downgrade)(graph, node, version)
        except (TypeError, ValueError) as error:
            raise Unsupported(str(error).splitlines()[0]) from error

    def _discard(self) -> None:
        """Discard the nodes that an adapter wrote before it failed."""
        self._step_losses = []
        for writer in self._writers.values():
            for node in writer.take():
                detach(node)

    def _record_loss(self, what: str) -> None:
        """Called when an adapter reports that the next step is lossy."""
        if not self._lossy:
            raise Unsupported(what, "allow lossy steps to convert it anyway")
        self._step_losses.append(what)

    def _problem(self, node: ir.Node, version: int, reason: Unsupported) -> None:
        self._problems.found.append(self._problem_of(node, version, reason.reason, reason.hint))

    def _problem_of(self, node: ir.Node, version: int, reason: str, hint: str = "") -> Problem:
        """A problem of a node, under the name of the model's operator that it was written for."""
        op, at = self._source_operator or (node.op_type, version)
        domain = "ai.onnx.ml" if node.domain == ML else "opset"
        inside = "" if op == node.op_type else f" needs {node.op_type}"
        return Problem(op, f"{op} of {domain} {at}{inside}: {reason}", hint, (source_locations.read(node),))

    def _upgrade(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        name, goal = schema_versions.name_of(node), self._target_of(node)
        old = schema_versions.since(name, version)
        if old is None:
            raise Unsupported(schema_versions.missing_reason(name, version))
        for new in (v for v in schema_versions.history(name) if old < v <= goal):
            adapter = up.get(name, new)
            if adapter is not None:
                self._adapt(graph, node, adapter, old, new)
                return
            reason = schema_versions.upward(node, old, new)
            if reason:
                raise Unsupported(f"{reason} in opset {new}")
            old = new
        if schema_versions.since(name, version) != old:
            self._check_dtypes(graph, node, old)

    def _downgrade(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        name, goal = schema_versions.name_of(node), self._target_of(node)
        new = schema_versions.since(name, version)
        if new is None:
            raise Unsupported(schema_versions.missing_reason(name, version))
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
                raise Unsupported(f"added in opset {new}")
            reason, drop = schema_versions.downward(node, new, old)
            if reason:
                raise Unsupported(reason)
            for attribute in drop:
                del node.attributes[attribute]
            new = old
        if new != start:
            self._check_dtypes(graph, node, new)

    def _check_written(self, graph: ir.Graph, node: ir.Node) -> None:
        """Cast around a node written at the target's opset if its dtypes are not supported there."""
        since = schema_versions.since(schema_versions.name_of(node), self._current_target)
        try:
            if since is not None and self._current_target <= OPSET:
                self._check_dtypes(graph, node, since)
        except Unsupported as why:
            self._problem(node, self._current_target, why)

    def _check_dtypes(self, graph: ir.Graph, node: ir.Node, version: int) -> None:
        reason = schema_versions.wrong_dtype(node, version)
        if not reason:
            return
        cast = (
            decompose_for_opset.cast_around(self._writer(self._current_target), node, version, self._lossy)
            if node.domain != ML
            else None
        )
        if cast is None:
            raise Unsupported(reason)
        self._replace(graph, node, cast, self._current_target)

    def _decompose(self, graph: ir.Graph, node: ir.Node, version: int, opset: int) -> None:
        """Replace the node by its decomposition; its subgraphs are first converted to the decomposition's opset."""
        if node.domain == ML:
            raise Unsupported(f"added in ai.onnx.ml {version}")
        if self._constant(graph, node, min(version, OPSET)):
            return
        if self._depth > _MAX_DEPTH:
            raise Unsupported(f"added in opset {version}, and its function body does not lead to older operators")
        self._depth += 1
        try:
            if inner := bodies_of(node):
                body, written_at = decompose_for_opset.function_body(node, version)
                if body is None:
                    raise Unsupported(f"added in opset {schema_versions.first(node.op_type)}")
                for part in inner:
                    self._at(written_at, part, opset)
            nodes, results, written_at = decompose_for_opset.decomposition(node, version, self._names)
            self._insert(graph, node, nodes, results, written_at)
        finally:
            self._depth -= 1

    def _constant(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """Replace a node with constant results by the constants."""
        if is_identity(node):  # it would be replaced by an Identity again
            return False
        results = [known(v) for v in node.outputs]
        if not results or any(r is None for r in results):
            return False
        self._replace(graph, node, tuple(results), version)
        return True

    def _at(self, to: int, graph: ir.Graph, version: int) -> None:
        """Convert a graph to another opset than the model's target."""
        self._current_target, target = to, self._current_target
        try:
            self.graph(graph, version)
        finally:
            self._current_target = target

    def _adapt(self, graph: ir.Graph, node: ir.Node, adapter: Rule, version: int, to: int) -> None:
        at, ml = (OPSET, to) if node.domain == ML else (to, 0)
        self._replace(graph, node, results_of(node, adapter, version, self._writer(at, ml)), at, ml)

    def _writer(self, version: int, ml: int = 0) -> Builder:
        if (version, ml) not in self._writers:
            domains = {ML: ml} if ml else {}
            self._writers[version, ml] = Builder(version, self._names, known, domains=domains, loses=self._record_loss)
        return self._writers[version, ml]

    def _replace(self, graph: ir.Graph, node: ir.Node, results: Any, version: int, ml: int = 0) -> None:
        self._insert(graph, node, [], results if isinstance(results, tuple) else (results,), version, ml)

    def _insert(
        self, graph: ir.Graph, node: ir.Node, nodes: list[ir.Node], results: tuple[Any, ...], version: int, ml: int = 0
    ) -> None:
        """Insert nodes in place of `node`; their results get the names, types and uses of the node's outputs."""
        writer = self._writer(version, ml)
        name = written_nodes.namer(node, writer, self._node_names, self._converted)
        written = replace(node, nodes or writer.take(), results, writer, name=name)
        self._inserted += written
        if self._losses is not None:
            self._losses += [self._problem_of(node, version, what) for what in self._step_losses]
        self._step_losses = []
        for new in written:
            type_body(new, version)
            for inner in bodies_of(new):
                self.graph(inner, version, written=True)
                if self._current_target == self._target:
                    self._converted.add(inner)
            self._visit(graph, new, version, ml or self._ml_version, written=True)
