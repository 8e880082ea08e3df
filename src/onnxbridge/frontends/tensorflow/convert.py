"""A traced TensorFlow function as a hub model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, UsageError, merge
from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.frontends.tensorflow.graph import op_schemas, source_locations
from onnxbridge.frontends.tensorflow.graph.functions import all_operators
from onnxbridge.frontends.tensorflow.graph.graph_reader import GraphReader
from onnxbridge.frontends.tensorflow.graph.tensors import StoredValue, plain_name, ref
from onnxbridge.frontends.tensorflow.graph.variables import State, Writes, is_write
from onnxbridge.frontends.tensorflow.lookup_tables import Table
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.builder.target import HubTarget
from onnxbridge.hub.decompositions.complex_numbers import pairs as complex_pairs
from onnxbridge.hub.decompositions.complex_numbers.pairs import Complex
from onnxbridge.hub.ir import provenance, states
from onnxbridge.hub.ir.unique_name import unique_name
from onnxbridge.hub.ir.values import ROWS, undetermined
from onnxbridge.lowering import Ref, lower, resolve

DIRECTION = "TensorFlow to ONNX"


@dataclass(frozen=True)
class Traced:
    """A function's graph with the hub's names of its inputs and outputs.

    `inputs` and `outputs` pair a name with a graph tensor; `shapes` are the inputs' shapes with names for dynamic sizes;
    `captures` pairs each captured tensor with its placeholder; `names` maps the id of a variable's handle to its name, and
    `trainable` to whether it is trained. `function` is the concrete function that has the graph. `partitions` names
    the row splits among the inputs, what they partition, and by how much its size exceeds their last element.
    """

    graph: Any
    inputs: list[tuple[str, Any]]
    shapes: list[list[int | str | None] | None]
    outputs: list[tuple[str, Any]]
    captures: list[tuple[Any, Any]]
    names: Mapping[int, str]
    call: Callable[[list[Any]], list[Any]]
    trainable: Mapping[int, bool]
    function: Any
    partitions: Sequence[tuple[str, str, int]] = ()

    @functools.cached_property
    def writes(self) -> Writes | None:
        """Finds the variables that the function changes; None if it changes none."""
        return Writes() if any(is_write(op) for op in all_operators(self.graph)) else None

    @functools.cached_property
    def written(self) -> set[str]:
        """The names of the graph's inputs whose variables or tables the function changes."""
        return {self.graph.inputs[i].name for i in self.writes.positions(self.graph)} if self.writes else set()

    @functools.cached_property
    def states(self) -> list[State]:
        """The variables that the function changes."""
        used = {name for name, _ in (*self.inputs, *self.outputs)}
        return [
            State(unique_name(self.names.get(id(handle)) or plain_name(placeholder), used), handle, placeholder)
            for handle, placeholder in self.captures
            if placeholder.name in self.written and _is_variable(handle)
        ]


class _Values(dict[Hashable, Any]):
    """The hub's values; a weight or constant is created when it is first used."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self._op = op

    def __missing__(self, key: Hashable) -> Any:
        if not isinstance(key, StoredValue):
            raise KeyError(key)
        read = key.read()
        if isinstance(read, Table):
            self[key] = read
            return read
        if read.dtype.kind == "c":
            parts = ((read.real, "real"), (read.imag, "imag"))
            made = self[key] = Complex(*(self._op.constant(np.ascontiguousarray(p), f"{key.name}.{n}") for p, n in parts))
            return made
        made = self[key] = self._op.constant(read, key.name)
        if key.state and made.const_value is not None:
            provenance.set_state(made.const_value, key.state)
        return made


def hub_model(traced: Traced, domains: frozenset[str] = frozenset()) -> ir.Model:
    """The function as a hub model. Its rules may use operators of these domains outside the standard.

    Raises:
        ConversionError: with every operator that cannot be converted.
    """
    import tensorflow as tf

    reader = GraphReader(
        source_locations.location_finder(), "constant" if any(t.dtype == tf.resource for t, _ in traced.captures) else "",
        writes=traced.writes,
    )  # fmt: skip
    target = HubTarget(DIRECTION, lambda key: reader.declared.get(key, ("", None, None)))
    op = target.writer
    op.allowed_domains = domains
    values = _Values(op)
    bound: dict[str, Any] = {}
    _refuse_writes(traced, reader)
    inputs = []
    for (name, tensor), shape in zip(traced.inputs, traced.shapes, strict=True):
        inputs.append(_input(op, values, name, tensor.dtype, shape))
        bound[tensor.name] = Ref(("input", name))
    for splits, partitioned, fewer in traced.partitions:
        values["input", splits].meta[ROWS] = "splits", values["input", partitioned], fewer
    for external, internal in traced.captures:
        state = reader.constants
        if external.dtype == tf.resource:
            state = {True: "parameter", False: "buffer", None: ""}[traced.trainable.get(id(external))]
        bound[internal.name] = Ref(captured_value(external, internal, traced.names, state))
    for s in traced.states:
        stored = bound[s.placeholder.name].key
        inputs.append(_input(op, values, s.name, *s.declared))
        states.describe(inputs[-1], stored.read())
        reader.states[stored] = Ref(("input", s.name))
    lower(reader.calls(traced.graph, [t for _, t in traced.outputs], bound), rule, values, target)
    names = [*(name for name, _ in traced.outputs), *(states.next_name(s.name) for s in traced.states)]
    last = [reader.states[bound[s.placeholder.name].key] for s in traced.states]
    results = resolve([*(ref(t, bound, "") for _, t in traced.outputs), *last], values)
    results = [complex_pairs.join(op, r) if isinstance(r, Complex) else op.constant(r) for r in results]
    _refuse_undetermined(names, results)
    outputs = [op.output(r, name) for r, name in zip(results, names, strict=True)]
    return op.model(inputs, outputs)


def _input(op: Any, values: _Values, name: str, declared: Any, shape: Any) -> ir.Value:
    """A new input of the hub; a complex one is a pair of real tensors along a last axis."""
    dtype = hub_dtype(declared)
    if dtype is None:
        raise UsageError(f"the input {name!r} is a {declared.name}, which ONNX does not support")
    part = complex_pairs.PART_DTYPE.get(dtype)
    made: ir.Value = op.input(name, part or dtype, [*(shape or ()), 2] if part else shape)
    values["input", name] = complex_pairs.split(op, made) if part else made
    return made


def captured_value(external: Any, internal: Any, names: Mapping[int, str], state: str) -> StoredValue:
    """A captured tensor, or the variable or lookup table of a captured handle; it is read when used, without a copy."""
    import tensorflow as tf

    name = names.get(id(external)) or internal.name.removesuffix(":0").removesuffix("/resource")
    if external.dtype != tf.resource:
        return StoredValue(name, lambda: op_schemas.eager_array(external), state)

    def read() -> Any:
        if not _is_variable(external):
            return Table(name, external)
        dtype = external._handle_data.shape_and_type[0].dtype
        return op_schemas.eager_array(tf.raw_ops.ReadVariableOp(resource=external, dtype=tf.as_dtype(dtype)))

    return StoredValue(name, read, state)


def _is_variable(handle: Any) -> bool:
    data = getattr(handle, "_handle_data", None)
    return data is not None and bool(data.shape_and_type)


def _refuse_undetermined(names: list[str], results: list[ir.Value]) -> None:
    """Reject outputs that a factorization does not determine.

    Raises:
        ConversionError: with each of these outputs.
    """
    problems = [
        Problem(f"output {name!r}", reason, "return something that does not depend on these signs")
        for result, name in zip(results, names, strict=True)
        if (reason := undetermined(result))
    ]
    if problems:
        raise ConversionError(DIRECTION, problems)


def _refuse_writes(traced: Traced, reader: GraphReader) -> None:
    """Reject a function that changes what cannot become inputs and outputs.

    Raises:
        ConversionError: with every such operator.
    """
    if traced.writes is None:
        return
    unknown = traced.written - {s.placeholder.name for s in traced.states}
    refused = [op for op in all_operators(traced.graph) if is_write(op)] if unknown else traced.writes.refused
    problems = [
        Problem(op.type, "the model changes a table, or trains a variable, and ONNX has no state",
                "convert the function that infers, with training=False", (reader.location(op),))
        for op in refused
    ]  # fmt: skip
    if problems:
        raise ConversionError(DIRECTION, merge(problems))
