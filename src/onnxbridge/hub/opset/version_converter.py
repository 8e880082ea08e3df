"""Converts a model from one opset to another: each node is converted through the versions of its operator to the target.

A step is an adapter, or nothing if the schemas are compatible. The walker binds and runs the adapter, decomposes where there is
none or it refuses, and reports the reason. What is its own here is the loop over nodes: they are rewritten in place, and what
an adapter or a decomposition wrote continues from the version that it is written at.
ai.onnx.ml is converted in the same way on request; its adapters write ai.onnx operators at the hub's opset.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported, first_line
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.replacement import detach, is_identity, replace
from onnxbridge.hub.builder.scratch_target import IdentityValues
from onnxbridge.hub.decompositions.microsoft import is_decomposable
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import bodies_of, every_graph, values_in
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.opset import decompose_for_opset, schema_versions, written_nodes
from onnxbridge.hub.opset.infer_types import complete, type_body
from onnxbridge.hub.opset.known_values import FIXED, STORED, known, store_constants
from onnxbridge.hub.opset.next_adapter import call_of, next_adapter
from onnxbridge.lowering import Body, Call, Problems, Target, lower
from onnxbridge.rules import Rule

ML = "ai.onnx.ml"
_DOMAINS = ("", "ai.onnx")
_MAX_DEPTH = 40


class VersionConverter:
    """Converts one model in place.

    `ml` is the target version of ai.onnx.ml, None to leave it unchanged. `losses` collects a problem for each lossy step;
    without it lossy steps are not allowed.
    """

    def __init__(self, model: ir.Model, to: int, ml: int | None = None, losses: list[Problem] | None = None) -> None:
        self._model = model
        self._current_target = self._target = to
        self._ml = ml
        self.names = {v.name for g in every_graph(model) for v in values_in(g) if v.name}
        self._node_names = {n.name for g in every_graph(model) for n in g if n.name}
        self._writers: dict[tuple[int, int], Builder] = {}
        self._problems = Problems("")
        self._losses = losses
        self.lossy = False
        self._step_losses: list[str] = []
        self._source_operator: tuple[str, int] | None = None
        self.depth = 0
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
                    self.convert_at(OPSET, owner, version)
                    version = OPSET
                if not self._problems.found:
                    self.graph(owner, version)
                written_nodes.drop_initializers(owner, written_nodes.unused_initializers(owner) - unused)
            if "" in owner.opset_imports or version != self._current_target:
                owner.opset_imports[""] = self._current_target
            if self._ml is not None:
                self._import(owner)
            written_nodes.register_constants(owner, owner is not self._model.graph, self.names, self._node_names)
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
        """Convert a node, with lossy steps only if it cannot be converted without and they are allowed."""
        outer, lossy = self._source_operator, self.lossy
        self._source_operator, self.lossy = outer or (node.op_type, version), False
        try:
            with self._problems:
                complete(node, version)
                if version > self.goal(node):
                    store_constants(node)
                try:
                    self._convert(graph, node, version, written)
                except ConversionError:
                    if self._losses is None or node.graph is not graph:
                        raise
                    self.lossy = True
                    self._convert(graph, node, version, written)
        finally:
            self._source_operator, self.lossy = outer, lossy

    def _convert(self, graph: ir.Graph, node: ir.Node, version: int, written: bool, adapt: bool = True) -> None:
        """Convert a node in one step, and then the nodes that this wrote; unless `adapt` it is decomposed.

        Raises:
            ConversionError: if neither an adapter nor a decomposition supports the node.
        """
        target = NodeTarget(self, node, version)
        try:
            target.convert(written, adapt)
        except ConversionError:
            if not self._convert_through_hub(graph, node, version):
                raise
            return
        self._inserted += target.inserted
        self.depth += 1
        for new in target.inserted:
            type_body(new, target.opset)
            for inner in bodies_of(new):
                self.graph(inner, target.opset, written=True)
                if self._current_target == self._target:
                    self._converted.add(inner)
            self._visit(graph, new, target.opset, target.ml or self._ml_version, written=True)
        self.depth -= 1

    def _convert_through_hub(self, graph: ir.Graph, node: ir.Node, version: int) -> bool:
        """Convert a node to the hub's version first, for which its decomposition is written; returns whether that was done."""
        since, hub = schema_versions.since(node.op_type, version), schema_versions.since(node.op_type, OPSET)
        if version <= self.goal(node) or since is None or hub is None or since >= hub or not _is_decomposable(node):
            return False
        target, self._current_target, self._inserted = self._current_target, OPSET, [node]
        try:
            self._convert(graph, node, version, False)
        finally:
            self._current_target, inserted, self._inserted = target, self._inserted, []
        for each in [n for n in inserted if n.graph is graph]:
            if each.op_type == node.op_type:
                self._convert(graph, each, OPSET, False, adapt=False)  # adapters would lead back to the older version
            else:
                self._node(graph, each, OPSET)
        return True

    def goal(self, node: ir.Node) -> int:
        """The version of the node's domain to convert to."""
        return self._ml if node.domain == ML and self._ml is not None else self._current_target

    def convert_at(self, to: int, graph: ir.Graph, version: int) -> None:
        """Convert a graph to another opset than the model's target."""
        self._current_target, target = to, self._current_target
        try:
            self.graph(graph, version)
        finally:
            self._current_target = target

    def writer(self, version: int, ml: int = 0) -> Builder:
        """The builder that writes at these versions."""
        if (version, ml) not in self._writers:
            domains = {ML: ml} if ml else {}
            self._writers[version, ml] = Builder(version, self.names, known, domains=domains, loses=self._record_loss)
        return self._writers[version, ml]

    def insert(self, node: ir.Node, nodes: list[ir.Node], results: tuple[Any, ...], writer: Builder) -> list[ir.Node]:
        """Insert nodes in place of `node`; their results get the names, types and uses of the node's outputs."""
        name = written_nodes.namer(node, writer, self._node_names, self._converted)
        written = replace(node, nodes or writer.take(), results, writer, name=name)
        if self._losses is not None:
            self._losses += [self.problem(node, what) for what in self._step_losses]
        self._step_losses = []
        return written

    def discard(self) -> None:
        """Discard the nodes that an adapter wrote before it failed."""
        self._step_losses = []
        for writer in self._writers.values():
            for node in writer.take():
                detach(node)

    def _record_loss(self, what: str) -> None:
        """Called when an adapter reports that the next step is lossy."""
        if not self.lossy:
            raise Unsupported(what, "allow lossy steps to convert it anyway")
        self._step_losses.append(what)

    def problem(self, node: ir.Node, reason: str, hint: str = "") -> Problem:
        """A problem of a node, under the name of the model's operator that it was written for."""
        assert self._source_operator is not None
        op, version = self._source_operator
        domain = "ai.onnx.ml" if node.domain == ML else "opset"
        inside = "" if op == node.op_type else f" needs {node.op_type}"
        return Problem(op, f"{op} of {domain} {version}{inside}: {reason}", hint, (source_locations.read(node),))


class NodeTarget(Target):
    """The target of the walker for one node: the results of its adapter or decomposition replace the node's outputs.

    `inserted` are the nodes that replace it then, written at `opset` and version `ml` of ai.onnx.ml.
    """

    direction = "opset conversion"

    def __init__(self, converter: VersionConverter, node: ir.Node, version: int) -> None:
        self._converter = converter
        self._node = node
        self._version = version
        self._goal = converter.goal(node)
        self._refusal: Unsupported | None = None
        self._decomposition: list[ir.Node] = []
        self.opset, self.ml = version, 0
        self.inserted: list[ir.Node] = []

    @property
    def writer(self) -> Builder:
        return self._converter.writer(self.opset, self.ml)

    def convert(self, written: bool, adapt: bool = True) -> None:
        """Replace the node, unless it is valid at the target as it is. Dtypes of a `written` node are always checked.

        Unless `adapt`, the node is decomposed without a look at the adapters.

        Raises:
            ConversionError: if neither an adapter nor a decomposition supports the node.
        """
        rules: dict[str, Rule] = {}
        call = call_of(self._node)
        try:
            if adapt:
                step = next_adapter(self._node, self._version, self._goal, written and self._goal <= OPSET)
                if step is None:
                    return
                call = call_of(self._node, step.version)
                rules[call.op] = step.adapter
                if self._version > self._goal < schema_versions.first(call.op):
                    self._convert_bodies(step.to)
                self.opset, self.ml = (OPSET, step.to) if self._node.domain == ML else (step.to, 0)
        except Unsupported as refusal:
            self._refusal = refusal
        lower([call], rules, IdentityValues(), self)

    def static(self, key: Hashable, value: Any) -> Any:
        return known(value)

    @contextmanager
    def scope(self, call: Call) -> Iterator[None]:
        """Discards what a failed adapter or decomposition wrote."""
        try:
            yield
        except (TypeError, ValueError) as error:  # from the builder, about dtypes and shapes
            self._converter.discard()
            raise Unsupported(first_line(error)) from error
        except Exception:
            self._converter.discard()
            raise

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        self.inserted = self._converter.insert(self._node, self._decomposition, results, self.writer)
        return results

    def problem(self, call: Call, error: Exception) -> Problem:
        found = super().problem(call, error)
        return self._converter.problem(self._node, found.reason, found.hint)

    def decompose(self, call: Call) -> Body | None:
        """Without an adapter: constant results, Casts to a dtype that the target supports, or the operator's decomposition."""
        with self.scope(call):
            results = None if self._node.domain == ML else self._constants() or self._cast() or self._decomposed()
        if results is None and self._refusal is not None:
            raise self._refusal
        return None if results is None else Body((), (), results)

    def _constants(self) -> tuple[Any, ...] | None:
        """The results of the node if they are constant."""
        self.opset, self.ml = min(self._version, OPSET), 0
        results = tuple(known(v) for v in self._node.outputs)
        # a constant result is written as an Identity
        return None if is_identity(self._node) or any(r is None for r in results) else results

    def _cast(self) -> tuple[Any, ...] | None:
        """The results of the node between Casts to a dtype that it supports at the target."""
        self.opset = self._version
        older = schema_versions.since(self._node.op_type, self._goal)
        cast = older and decompose_for_opset.cast_around(self.writer, self._node, older, self._converter.lossy)
        if not cast:
            self._converter.discard()
        return cast or None

    def _decomposed(self) -> tuple[Any, ...] | None:
        """The results of the node's decomposition, if there is one of its version and the target's opset is older."""
        node, op = self._node, self._node.op_type
        since = schema_versions.since(op, self._version)
        if since is None or self._version <= self._goal:
            return None
        first = schema_versions.first(op)
        if first <= self._goal and (since != schema_versions.since(op, OPSET) or not _is_decomposable(node)):
            return None
        if self._converter.depth > _MAX_DEPTH:
            raise Unsupported(f"added in opset {since}, and its function body does not lead to older operators")
        if bodies_of(node):
            body, opset = decompose_for_opset.function_body(node, since)
            if body is None:
                raise Unsupported(f"added in opset {first}")
            self._convert_bodies(opset)
        self._decomposition, results, self.opset = decompose_for_opset.decomposition(node, since, self._converter.names)
        return results

    def _convert_bodies(self, to: int) -> None:
        for body in bodies_of(self._node):
            self._converter.convert_at(to, body, self._version)


def _is_decomposable(node: ir.Node) -> bool:
    """Whether the decomposition of the hub's version can replace a node; not if an attribute is set by the function's caller."""
    return decompose_for_opset.can_decompose(node.op_type) and not any(a.is_ref() for a in node.attributes.values())
