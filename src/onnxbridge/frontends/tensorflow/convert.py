"""A traced TensorFlow function as a hub model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, UsageError, merge
from onnxbridge.frontends.tensorflow.dtypes import hub_dtype
from onnxbridge.frontends.tensorflow.graph import op_schemas, source_locations
from onnxbridge.frontends.tensorflow.graph.graph_reader import Held, Inliner, every_op, ref
from onnxbridge.frontends.tensorflow.ops import rule
from onnxbridge.hub.ir import provenance
from onnxbridge.hub.ir.target import HubTarget
from onnxbridge.lowering import Ref, lower, resolve

DIRECTION = "TensorFlow to ONNX"
LOWERED = frozenset({"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"})


@dataclass(frozen=True)
class Traced:
    """A function's graph with the names that its inputs and outputs have in the hub.

    `inputs` and `outputs` pair a name with a tensor of the graph; `shapes` are the inputs' with names for sizes that vary;
    `captures` pairs each captured tensor with its placeholder; `names` has the weights' names by the id of their handle, and
    `trainable` whether they are trained.
    """

    graph: Any
    inputs: list[tuple[str, Any]]
    shapes: list[list[int | str | None] | None]
    outputs: list[tuple[str, Any]]
    captures: list[tuple[Any, Any]]
    names: Mapping[int, str]
    call: Callable[[list[Any]], list[Any]]
    trainable: Mapping[int, bool]


class _Values(dict[Hashable, Any]):
    """The hub's values; a weight or constant becomes a constant when it is first used."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self._op = op

    def __missing__(self, key: Hashable) -> Any:
        if not isinstance(key, Held):
            raise KeyError(key)
        read = key.read()
        made = self[key] = self._op.constant(read, key.name)
        if key.state and made.const_value is not None:
            provenance.tell_state(made.const_value, key.state)
        return made


def hub_model(traced: Traced) -> ir.Model:
    """The function as a hub model.

    Raises:
        ConversionError: with every operator that is in the way.
    """
    import tensorflow as tf

    inliner = Inliner(source_locations.place(), "constant" if any(t.dtype == tf.resource for t, _ in traced.captures) else "")
    target = HubTarget(DIRECTION, lambda key: inliner.declared.get(key, ("", None, None)))
    op = target.writer
    values = _Values(op)
    bound: dict[str, Any] = {}
    inputs = []
    for (name, tensor), shape in zip(traced.inputs, traced.shapes, strict=True):
        dtype = hub_dtype(tensor.dtype)
        if dtype is None:
            raise UsageError(f"the input {name!r} is a {tensor.dtype.name}, which ONNX does not have")
        made = op.input(name, dtype, shape)
        values["input", name] = made
        bound[tensor.name] = Ref(("input", name))
        inputs.append(made)
    for external, internal in traced.captures:
        state = inliner.constants
        if external.dtype == tf.resource:
            state = {True: "parameter", False: "buffer", None: ""}[traced.trainable.get(id(external))]
        bound[internal.name] = Ref(held(external, internal, traced.names, state))
    _refuse_writes(traced, inliner)
    _refuse_lowered_control_flow(traced, inliner)
    lower(inliner.calls(traced.graph, [t for _, t in traced.outputs], bound), rule, values, target)
    results = resolve([ref(t, bound, "") for _, t in traced.outputs], values)
    outputs = [op.output(op.constant(r), name) for r, (name, _) in zip(results, traced.outputs, strict=True)]
    return op.model(inputs, outputs)


def held(external: Any, internal: Any, names: Mapping[int, str], state: str) -> Held:
    """A captured tensor, or the variable behind a captured handle, read when it is used and not copied."""
    import tensorflow as tf

    name = names.get(id(external)) or internal.name.removesuffix(":0").removesuffix("/resource")
    if external.dtype != tf.resource:
        return Held(name, lambda: op_schemas.eager_array(external), state)

    def read() -> Any:
        dtype = external._handle_data.shape_and_type[0].dtype
        return op_schemas.eager_array(tf.raw_ops.ReadVariableOp(resource=external, dtype=tf.as_dtype(dtype)))

    return Held(name, read, state)


def _refuse_lowered_control_flow(traced: Traced, inliner: Inliner) -> None:
    """Refuse loops and branches as TensorFlow 1 writes them, in operators whose nesting the graph does not say.

    Raises:
        ConversionError: with each kind of those operators.
    """
    problems = [
        Problem(op.type, "a loop or branch in the form of TensorFlow 1",
                "freeze with convert_variables_to_constants_v2(function, lower_control_flow=False), or build the graph after "
                "tf.compat.v1.enable_control_flow_v2()", (inliner.where(op),))
        for op in traced.graph.get_operations()
        if op.type.removeprefix("Ref") in LOWERED
    ]  # fmt: skip
    if problems:
        raise ConversionError(DIRECTION, merge(problems))


def _refuse_writes(traced: Traced, inliner: Inliner) -> None:
    """Refuse a function that changes variables: ONNX has no state.

    Raises:
        ConversionError: with every operator that writes.
    """
    problems = [
        Problem(op.type, "the model changes a variable when it runs, and ONNX has no state",
                "pass the state in and return it, or convert with training=False", (inliner.where(op),))
        for op in every_op(traced.graph)
        if op.type.startswith(("Assign", "ResourceScatter", "ResourceApply"))
    ]  # fmt: skip
    if problems:
        raise ConversionError(DIRECTION, merge(problems))

