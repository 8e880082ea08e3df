"""Runs a hub graph operator by operator in float64, with chosen operators rounded to a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.diagnostics import SourceLocation
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.runtime.bisect.low_precision.round_to import RoundTo
from onnxbridge.runtime.bisect.recorded_run import reads
from onnxbridge.runtime.bisect.reproduction import cut
from onnxbridge.runtime.executor.executor import Executor

Array = np.ndarray[Any, Any]

KEPT = 1 << 30
"""The values of a run are kept for later runs, which then run only what changes, up to so many bytes."""
_ROUNDED_INSIDE = frozenset({"DynamicQuantizeLinear"})
"""Operators that targets compose of several, whose rounding between them moves results by whole steps."""


@dataclass(frozen=True)
class Operator:
    """A node of the graph. `name` is that of its first result; `inputs` and `outputs` are names of values."""

    name: str
    op: str
    location: SourceLocation
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    executor: Executor = field(repr=False)

    def run(self, values: Mapping[str, Any], rounding: RoundTo | None) -> list[Any]:
        """The results for these inputs; `rounding` is applied to inputs, constants and results."""
        return self.executor.run(None, {name: values[name] for name in self.inputs}, simulated=rounding)  # type: ignore[arg-type]


class OperatorRuns:
    """A hub model that is run on one sample, in float64 or with some operators in a lower precision.

    Attributes:
        operators: in the order of execution.
        exact: the values of the run in float64, as far as they are kept.
        outputs: the model's outputs in float64.
        runs: how often the model, or the part of it that changes, was run.
    """

    def __init__(
        self, model: ir.Model, feeds: Mapping[str, Any], see: Callable[[Operator, Any, list[Any]], None],
        operators: tuple[Operator, ...] = (),
    ) -> None:  # fmt: skip
        """Run the model in float64; `see` is called with each operator, the values so far and its results.

        `operators` are those of other runs of the model, which need not be prepared again.
        """
        self._output_names = [str(v.name) for v in model.graph.outputs]
        constants = {str(v.name): v.const_value.numpy() for v in model.graph.initializers.values() if v.const_value is not None}
        self._inputs = {k: _wide(constants[k] if k in constants else feeds[k]) for k in _names(model.graph.inputs)}
        self._inputs |= {k: _wide(constants[k]) for k in self._output_names if k in constants}
        self.operators = operators or tuple(_operators(model))
        self._last_use = {name: i for i, op in enumerate(self.operators) for name in op.inputs}
        self.exact: dict[str, Any] = {}
        self.runs = 0
        self.outputs = self._run_exact(see)

    def _run_exact(self, see: Callable[[Operator, Any, list[Any]], None]) -> dict[str, Any]:
        values, kept, left = dict(self._inputs), dict(self._inputs), KEPT
        self.runs += 1
        for i, op in enumerate(self.operators):
            results = op.run(values, None)
            see(op, values, results)
            values.update(zip(op.outputs, results, strict=True))
            left -= sum(r.nbytes for r in results if isinstance(r, np.ndarray))
            if left >= 0:
                kept.update(zip(op.outputs, results, strict=True))
            self._free(values, op, i)
        self.exact = kept if left >= 0 else dict(self._inputs)
        return {name: values[name] for name in self._output_names}

    def rounded(self, low: Collection[str], rounding: RoundTo) -> dict[str, Any]:
        """The model's outputs when the operators of these names are rounded, and all others run in float64.

        What an operator that is not rounded computes is rounded where one that is rounded reads it.
        """
        self.runs += 1
        chosen, changed = frozenset(low), set[str]()
        values: dict[str, Any] = dict(self._inputs)
        for i, op in enumerate(self.operators):
            known = op.outputs[0] in self.exact
            if known and op.name not in chosen and changed.isdisjoint(op.inputs):
                values.update((name, self.exact[name]) for name in op.outputs)
            else:
                values.update(zip(op.outputs, op.run(values, rounding if op.name in chosen else None), strict=True))
                changed.update(op.outputs)
            self._free(values, op, i)
        return {name: values[name] for name in self._output_names}

    def _free(self, values: dict[str, Any], op: Operator, index: int) -> None:
        for name in {*op.inputs, *op.outputs}:
            if self._last_use.get(name, -1) <= index and name not in self._output_names:
                values.pop(name, None)


def _operators(model: ir.Model) -> list[Operator]:
    found = []
    for node in model.graph:
        outputs = tuple(_names(v for v in node.outputs if v.name and (v.uses() or v.is_graph_output())))
        if outputs:
            inputs, part = _part(model, node, outputs)
            executor = Executor(part, precision="float64", expanded=_ROUNDED_INSIDE, native=False)
            found.append(Operator(outputs[0], node.op_type, source_locations.read(node), inputs, outputs, executor))
    return found


def _part(model: ir.Model, node: ir.Node, outputs: tuple[str, ...]) -> tuple[tuple[str, ...], ir.Model]:
    """The names of the values that a node reads, and the node as a model of its own."""
    constants = [v for v in reads(node) if v.const_value is not None]
    read = tuple(dict.fromkeys(_names(v for v in reads(node) if v.const_value is None)))
    if bodies_of(node):
        return read, cut(model, list(read), outputs[0]) if len(outputs) == 1 else _cut(model, list(read), outputs)
    values: dict[str, ir.Value] = {}
    for v in (*constants, *(v for v in node.inputs if v is not None)):
        values.setdefault(str(v.name), ir.Value(name=v.name, type=v.type, const_value=v.const_value))
    inputs = [None if v is None else values[str(v.name)] for v in node.inputs]
    attributes = list(node.attributes.values())
    made = ir.Node(node.domain, node.op_type, inputs, attributes, num_outputs=len(node.outputs), name=node.name)
    for own, of_graph in zip(made.outputs, node.outputs, strict=True):
        own.name, own.type, own.shape = of_graph.name, of_graph.type, of_graph.shape
    made.metadata_props.update(node.metadata_props)
    graph = ir.Graph(
        [values[name] for name in read], [v for v in made.outputs if v.name in outputs], nodes=[made],
        initializers=[v for v in values.values() if v.const_value is not None],
        opset_imports=model.graph.opset_imports or {"": OPSET},
    )  # fmt: skip
    return read, ir.Model(graph, ir_version=model.ir_version)


def _cut(model: ir.Model, inputs: list[str], outputs: tuple[str, ...]) -> ir.Model:
    return ir.Model(ir.convenience.extract(model.graph, inputs, list(outputs)), ir_version=model.ir_version)


def _names(values: Any) -> list[str]:
    return [str(v.name) for v in values]


def _wide(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else value
