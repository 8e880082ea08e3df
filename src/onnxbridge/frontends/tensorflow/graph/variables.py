"""Variables that a function changes. ONNX models have no state: such a variable is an input, and its next value an output."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from onnxbridge.frontends.tensorflow.graph.control_flow_v1 import has_control_flow
from onnxbridge.frontends.tensorflow.graph.functions import BRANCHES, LOOPS, called_function, function
from onnxbridge.frontends.tensorflow.graph.tensors import through_identities

# The operator that computes the next value from the present one and the other inputs; "" where the input is the next value.
WRITES = {
    "AssignVariableOp": "", "AssignAddVariableOp": "AddV2", "AssignSubVariableOp": "Sub",
    "ResourceStridedSliceAssign": "TensorStridedSliceUpdate", "ResourceScatterNdUpdate": "TensorScatterUpdate",
    "ResourceScatterNdAdd": "TensorScatterAdd", "ResourceScatterNdSub": "TensorScatterSub",
    "ResourceScatterNdMin": "TensorScatterMin", "ResourceScatterNdMax": "TensorScatterMax",
    "ResourceScatterUpdate": "TensorScatterUpdate", "ResourceScatterAdd": "TensorScatterAdd",
    "ResourceScatterSub": "TensorScatterSub", "ResourceScatterMin": "TensorScatterMin",
    "ResourceScatterMax": "TensorScatterMax",
}  # fmt: skip
OF_ROWS = frozenset(n for n in WRITES if n.startswith("ResourceScatter") and not n.startswith("ResourceScatterNd"))
"""Writes whose indices are those of rows; those of the operators that compute the next value are lists of coordinates."""
_WRITING = ("Assign", "ResourceScatter", "ResourceStridedSliceAssign", "ResourceApply", "LookupTableInsert", "LookupTableRemove")


def is_write(op: Any) -> bool:
    """Whether an operator changes a variable or a table."""
    return str(op.type).startswith(_WRITING)


@dataclass(frozen=True)
class State:
    """A variable that the function changes: its name in the hub, its handle, and the handle's placeholder in the graph."""

    name: str
    handle: Any
    placeholder: Any

    @property
    def declared(self) -> tuple[Any, list[int | None] | None]:
        """The dtype and the shape of the variable."""
        import tensorflow as tf

        shape, dtype = next((d.shape, d.dtype) for d in self.handle._handle_data.shape_and_type)
        return tf.as_dtype(dtype), None if shape.unknown_rank else tf.TensorShape(shape).as_list()


_recorded: weakref.WeakKeyDictionary[Any, frozenset[str]] = weakref.WeakKeyDictionary()


def record_names(source: Any, states: Iterable[State]) -> None:
    """Record the names of the variables that a source changes. Without declared inputs, only a trace tells them from inputs."""
    if names := frozenset(s.name for s in states):
        with suppress(TypeError):  # it has no weak references
            _recorded[source] = names


def recorded_names(source: Any) -> frozenset[str]:
    """The names of the variables that a source changes, if it was traced before."""
    with suppress(TypeError):  # it has no weak references
        return _recorded.get(source, frozenset())
    return frozenset()


class Writes:
    """Finds the variables that a graph changes, also in functions that it calls. `refused` collects the operators that change
    something else: tables, variables that are no inputs of the graph, and those in TensorFlow 1 control flow."""

    def __init__(self) -> None:
        self.refused: list[Any] = []
        self._functions: dict[str, frozenset[int]] = {}

    def positions(self, graph: Any) -> frozenset[int]:
        """The positions of the graph's inputs that are handles of variables which it changes."""
        by_name = {t.name: i for i, t in enumerate(graph.inputs)}
        found = set()
        for op in graph.get_operations():
            if is_write(op) and (op.type not in WRITES or has_control_flow(graph)):
                self.refused.append(op)
                continue
            for handle in self.handles(op):
                position = by_name.get(handle.name)
                if position is not None:
                    found.add(position)
                elif is_write(op):
                    self.refused.append(op)
        return frozenset(found)

    def handles(self, op: Any) -> list[Any]:
        """The handles of the variables that an operator of a graph changes."""
        if op.type in WRITES:
            return [through_identities(op.inputs[0])]
        positions: set[int] = set()
        for name, first in _called(op):
            if name not in self._functions:
                self._functions[name] = frozenset()
                self._functions[name] = self.positions(function(op, name))
            positions |= {first + i for i in self._functions[name]}
        return [through_identities(op.inputs[i]) for i in sorted(positions)]


def _called(op: Any) -> Iterator[tuple[str, int]]:
    """The functions that an operator calls, with the position of the operator's input that is their first."""
    if name := called_function(op):
        yield name, 0
    elif op.type in LOOPS:
        yield from ((op.get_attr(a).name, 0) for a in ("cond", "body"))
    elif op.type in ("If", "StatelessIf"):
        yield from ((op.get_attr(a).name, 1) for a in ("then_branch", "else_branch"))
    elif op.type in BRANCHES:
        yield from ((f.name, 1) for f in op.get_attr("branches"))
