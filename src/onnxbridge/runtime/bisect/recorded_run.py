"""One side of a bisection: a hub model's graph, and what a run of it held at every value."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.ir.graphs import bodies_of
from onnxbridge.runtime.bisect.fingerprint import ORDERS, Fingerprint, fingerprint
from onnxbridge.runtime.executor.executor import Executor
from onnxbridge.runtime.verify.compare import Tolerance
from onnxbridge.runtime.verify.pairing import cast_to

KEPT = 256 << 20
"""Values of small models are kept in memory, up to so many bytes; of larger ones only fingerprints, and chosen values are
fetched by another run."""


@dataclass
class Side:
    """A model and what its runs held.

    Attributes:
        inputs_of: the values that the node of a value reads, constants left out; its subgraphs' reads included.
        order: the names of all inputs and results of nodes, in the order of execution.
        held, rounded: fingerprints by name, of the run in float64 and in the model's own precision.
        arrays: the values that were kept.
        runs: the number of runs so far.
    """

    title: str
    model: ir.Model
    feeds: Mapping[str, Any]
    values: dict[str, ir.Value] = field(default_factory=dict)
    inputs_of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    held: dict[str, Fingerprint | None] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    rounded: dict[str, Fingerprint | None] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    runs: int = 0
    _rounded_arrays: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for value in self.model.graph.inputs:
            self._add(value, ())
        for node in self.model.graph:
            read = tuple(dict.fromkeys(str(v.name) for v in reads(node) if str(v.name) in self.values))
            for value in node.outputs:
                if value.name:
                    self._add(value, read)

    def _add(self, value: ir.Value, read: tuple[str, ...]) -> None:
        name = str(value.name)
        self.values[name], self.inputs_of[name] = value, read
        self.order.append(name)

    @property
    def output_names(self) -> list[str]:
        return [str(v.name) for v in self.model.graph.outputs]

    def node(self, name: str) -> ir.Node | None:
        return self.values[name].producer()

    def nodes_between(self, inputs: Collection[str], output: str) -> list[ir.Node]:
        """The nodes that compute a value from others, in the order of execution."""
        found: dict[ir.Node, None] = {}
        pending = [output]
        while pending:
            name = pending.pop()
            node = None if name in inputs else self.node(name)
            if node is not None and node not in found:
                found[node] = None
                pending += self.inputs_of[name]
        return [node for node in self.model.graph if node in found]

    def record(self) -> None:
        """Run the model once, in float64, and take the fingerprint of every value."""
        results = self._watch(_Recorder(self.held, self.arrays), "float64")
        self.outputs = dict(zip(self.output_names, results, strict=True))

    def record_rounding(self) -> None:
        """Run the model once in its own precision, which shows how far rounding moves each value."""
        self._watch(_Recorder(self.rounded, self._rounded_arrays), None)

    def fetch(self, names: Collection[str]) -> dict[str, Any]:
        """The arrays of some values: kept ones, others by another run."""
        if missing := [name for name in names if name not in self.arrays]:
            wanted = set(missing)

            def see(name: str, value: Any) -> None:
                if name in wanted:
                    self.arrays[name] = value

            self._watch(see, "float64")
        return {name: self.arrays[name] for name in names if name in self.arrays}

    def tolerance_at(self, name: str, exact: np.ndarray[Any, Any]) -> Tolerance:
        """How far rounding to the model's own precision moves a value at most, for any order of operations."""
        own = self.rounded_array(name) if exact.dtype.kind == "f" and exact.size else None
        if own is None:
            return Tolerance(0.0, 0.0, origin="derived")
        with np.errstate(all="ignore"):
            off = np.abs(exact - own.astype(np.float64))
            largest = float(np.abs(np.where(np.isfinite(exact), exact, 0.0)).max())
            most = float(np.where(np.isfinite(off), off, 0.0).max())
        return Tolerance(ORDERS * most + 2.0**-22 * largest, 0.0, origin="derived")

    def rounded_array(self, name: str) -> Any:
        """A value in the model's own precision: a kept one, or by another run; None where it is no tensor."""
        if name not in self._rounded_arrays:
            found = self._rounded_arrays
            self._watch(lambda seen, value: found.update({seen: value}) if seen == name else None, None)
        value = self._rounded_arrays.get(name)
        return value if isinstance(value, np.ndarray) else None

    def _watch(self, see: Any, precision: str | None) -> list[Any]:
        executor = Executor(self.model, precision=precision, native=False)
        self.runs += 1
        dtypes = {str(v.name): v.dtype for v in self.model.graph.inputs}
        results = executor.watch(see, {k: cast_to(v, dtypes[k]) for k, v in self.feeds.items() if k in dtypes})
        del executor
        gc.collect()  # it holds the weights in float64, and plans refer to themselves
        return results


class _Recorder:
    """Takes the fingerprint of each value, and keeps the values themselves as long as they are small together."""

    def __init__(self, held: dict[str, Fingerprint | None], arrays: dict[str, Any]) -> None:
        self._held, self._arrays, self._left = held, arrays, KEPT

    def __call__(self, name: str, value: Any) -> None:
        self._held[name] = fingerprint(value)
        self._left -= value.nbytes if isinstance(value, np.ndarray) else 0
        if self._left >= 0:
            self._arrays[name] = value
        else:
            self._arrays.clear()


def reads(node: ir.Node) -> list[ir.Value]:
    """The values that a node reads, those that its subgraphs take from outside included."""
    found = [v for v in node.inputs if v is not None]
    for body in bodies_of(node):
        inside = {id(v) for v in body.inputs} | {id(v) for n in body for v in n.outputs}
        found += [v for n in body for v in reads(n) if id(v) not in inside]
        found += [v for v in body.outputs if id(v) not in inside]
    return found
