"""Variables that a TensorFlow Lite model keeps between runs. ONNX models have no state: each is an input, and its next value an
output.

There are two kinds: resources, which operators of their own read and assign, and variable tensors, which LSTM, RNN and SVDF
update. Layers of whole sequences have variable tensors as well, but these start at zero in every run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.formats.tflite import constants, read_model
from onnxbridge.formats.tflite.dtypes import hub_dtype
from onnxbridge.formats.tflite.model import Graph, Model, Operator, Signature, Tensor
from onnxbridge.frontends.tflite.signatures import signature_of
from onnxbridge.hub.ir import states
from onnxbridge.hub.ir.unique_name import unique_name

OPERATORS = frozenset({"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"})
# Operators that compute one step from variable tensors, which they update: the number of their outputs, and those inputs.
STEPS = {"LSTM": (1, (18, 19)), "basic::LSTM": (4, (1, 4)), "RNN": (1, (4,)), "SVDF": (1, (4,))}
Place = tuple[int, int]
"""A tensor: the index of its graph, and its own."""


@dataclass
class Stateless:
    """A model without variables, and what was changed for it in the signature's graph: the positions of the operators that are
    kept, and constants in place of variables that are only read. `initial` has the constants at which states start, by name, and
    `variables` the variable tensors that have a next value after a run, by the tensor that stands for this value.

    `is_changed` is whether operators were left out.
    """

    model: Model
    signature: Signature
    kept: list[int] = field(default_factory=list)
    constants: dict[int, Place] = field(default_factory=dict)
    states: Sequence[str] = ()
    initial: dict[str, Tensor] = field(default_factory=dict)
    variables: dict[int, int] = field(default_factory=dict)
    is_changed: bool = False

    def describe(self, hub: ir.Model) -> None:
        """Write into the descriptions of the hub's state inputs at which values they start."""
        for value in hub.graph.inputs:
            if value.name is not None and value.name in self.states:
                tensor = self.initial.get(value.name)
                states.describe(value, None if tensor is None else _first_value(self.model.path, tensor))


def _first_value(path: str, tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of a state before the first run; one element for a variable tensor, whose elements are the same."""
    if not tensor.is_variable:
        found = constants.constant(path, tensor)
        return None if found is None else found.numpy()
    dtype, q = hub_dtype(tensor.type), tensor.quantization
    # the interpreter fills variable tensors of int8 with their zero point, others with the integer 0
    return None if dtype is None else np.full(1, q.zero_point[0] if q is not None and tensor.type == "INT8" else 0, dtype.numpy())


def read(path: str | os.PathLike[str], key: str | None) -> Stateless:
    """Read a file, and choose the signature `key`; None for its only or default one."""
    model = read_model.read(path)
    return stateless(model, signature_of(model, key))


def stateless(model: Model, signature: Signature) -> Stateless:
    """The model with the variables of the signature's graph as inputs and outputs; unchanged where branches or loops use them."""
    graph = model.graphs[signature.graph]
    found = _Variables(model, signature.graph)
    has_resources = any(o.name in OPERATORS for o in graph.operators)
    if not has_resources and not any(called(o) in STEPS for o in graph.operators) or not found.trace():
        return Stateless(model, signature)
    keys = [key for key in found.starts if key in found.written]
    used = {name for name, _ in (*signature.inputs, *signature.outputs)}
    names = {key: unique_name(key[1] or "state", used) for key in keys}
    tensors = [*graph.tensors, *found.added]
    for index, (g, i) in found.constants.items():
        constant = model.graphs[g].tensors[i]
        tensors[index] = replace(tensors[index], data=constant.data, offset=constant.offset)
    taken_in, last = (tuple(by_key[key] for key in keys) for by_key in (found.starts, found.values))
    changed = replace(
        graph, tensors=tensors, inputs=(*graph.inputs, *taken_in),
        outputs=(*(found.replaced.get(o, o) for o in graph.outputs), *last), operators=list(found.kept.values()),
    )  # fmt: skip
    graphs = [changed if g is graph else g for g in model.graphs]
    own = replace(
        signature, inputs=(*signature.inputs, *((names[key], found.starts[key]) for key in keys)),
        outputs=(
            *((name, found.replaced.get(i, i)) for name, i in signature.outputs),
            *((states.next_name(names[key]), found.values[key]) for key in keys),
        ),
    )  # fmt: skip
    initial = {names[key]: model.graphs[g].tensors[i] for key, (g, i) in found.initial.items() if key in names}
    return Stateless(
        replace(model, graphs=graphs), own, list(found.kept), found.constants, list(names.values()), initial, found.variables,
        is_changed=has_resources,
    )  # fmt: skip


def called(operator: Operator) -> str:
    """The name of an operator; LSTM has two kernels with different inputs."""
    return "basic::LSTM" if operator.name == "LSTM" and operator.options.get("kernel_type") == "BASIC" else operator.name


Key = tuple[str | int, str]
"""A variable: its container and name, or the index and name of a variable tensor."""


class _Variables:
    """The variables of a graph: `starts` are the tensors with their values at the beginning of a run, and
    `values` those at its end. `initial` are the constants that they start at when the model is loaded. `added` are tensors for
    next values of variable tensors, and `variables` the variable tensors by these."""

    def __init__(self, model: Model, graph: int) -> None:
        self._model, self._index, self._graph = model, graph, model.graphs[graph]
        self.starts: dict[Key, int] = {}
        self.values: dict[Key, int] = {}
        self.written: set[Key] = set()
        self.initial: dict[Key, Place] = {}
        self.constants: dict[int, Place] = {}
        self.replaced: dict[int, int] = {}
        self.kept: dict[int, Operator] = {}
        self.added: list[Tensor] = []
        self.variables: dict[int, int] = {}

    def trace(self) -> bool:
        """Follow the operators in their order; False if something else uses a variable, or one that is only read has no value."""
        handles: dict[int, Key] = {}
        for position, operator in enumerate(self._graph.operators):
            inputs = tuple(self.replaced.get(i, i) for i in operator.inputs)
            if operator.name == "CALL_ONCE":
                self._read_initial(operator)
                if self._only_variables(operator):
                    continue
            if not _is_complete(operator):
                return False
            if operator.name == "VAR_HANDLE":
                handles[operator.outputs[0]] = _key(operator)
            elif operator.name in OPERATORS and inputs[0] not in handles:
                return False
            elif operator.name == "READ_VARIABLE":
                value, key = operator.outputs[0], handles[inputs[0]]
                if key in self.values:
                    self.replaced[value] = self.values[key]
                else:
                    self.starts[key] = self.values[key] = value
            elif operator.name == "ASSIGN_VARIABLE":
                self.values[handles[inputs[0]]] = inputs[1]
                self.written.add(handles[inputs[0]])
            elif any(i in handles for i in inputs):
                return False
            else:
                self.kept[position] = replace(operator, inputs=inputs, outputs=(*operator.outputs, *self._update(operator)))
        for key in [k for k in self.starts if k not in self.written]:
            if key not in self.initial:
                return False
            self.constants[self.starts[key]] = self.initial[key]
        return True

    def _update(self, operator: Operator) -> list[int]:
        """The tensors for the next values of the variable tensors that an operator updates: outputs after its own.

        There are none for other graphs than the first, whose variable tensors the interpreter does not show.
        """
        count, positions = STEPS.get(called(operator), (0, ()))
        own = [operator.inputs[p] for p in positions if p < len(operator.inputs)]
        of_graph = self._graph.tensors
        are_states = all(i >= 0 and of_graph[i].is_variable and i not in self._graph.inputs for i in own)
        if self._index or not are_states or len(own) < len(positions) or len(operator.outputs) != count:
            return []
        made = []
        for i in own:
            key = i, of_graph[i].name
            if key not in self.values:
                self.starts[key], self.initial[key] = i, (self._index, i)
                self.written.add(key)
            made.append(len(of_graph) + len(self.added))
            self.added.append(replace(of_graph[i], name=states.next_name(of_graph[i].name), is_variable=False))
            self.values[key] = self.replaced[i] = made[-1]
            self.variables[made[-1]] = i
        return made

    def _only_variables(self, operator: Operator) -> bool:
        return all(o.name in ("VAR_HANDLE", "ASSIGN_VARIABLE") for o in self._initializer(operator).operators)

    def _read_initial(self, operator: Operator) -> None:
        graph, handles = self._initializer(operator), {}
        at = operator.options.get("init_subgraph_index", 0)
        for o in (o for o in graph.operators if _is_complete(o)):
            if o.name == "VAR_HANDLE":
                handles[o.outputs[0]] = _key(o)
            elif o.name == "ASSIGN_VARIABLE" and o.inputs[0] in handles and graph.tensors[o.inputs[1]].data is not None:
                self.initial[handles[o.inputs[0]]] = at, o.inputs[1]

    def _initializer(self, operator: Operator) -> Graph:
        index = operator.options.get("init_subgraph_index", 0)
        return self._model.graphs[index] if 0 <= index < len(self._model.graphs) else Graph("", (), (), (), ())


def _is_complete(operator: Operator) -> bool:
    """Whether an operator on a variable has its inputs and outputs; True for other operators."""
    inputs, outputs = {"VAR_HANDLE": (0, 1), "READ_VARIABLE": (1, 1), "ASSIGN_VARIABLE": (2, 0)}.get(operator.name, (0, 0))
    own = (*operator.inputs[:inputs], *operator.outputs[:outputs])
    return len(own) == inputs + outputs and min(own, default=0) >= 0


def _key(operator: Operator) -> Key:
    return operator.options.get("container", ""), operator.options.get("shared_name", "")
