"""Reads a Core ML program as calls, and lowers them to a hub model."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UnsafeFileError, UsageError
from onnxbridge.formats.coreml.mil_program import Block, Feature, Function, Slot, call_of, classes
from onnxbridge.frontends.coreml.names import Names
from onnxbridge.frontends.coreml.ops import rule
from onnxbridge.hub.builder.target import HubTarget
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.lowering import Body, Call, Ref, lower, resolve

STATE_WRITES = frozenset({"write_state", "coreml_update_state"})
SIZES = "onnxbridge.sizes"
"""Metadata key of an input: the allowed sizes of a flexible shape."""
KEYS = "onnxbridge.keys"
"""Metadata key of an input that is a dictionary in the source: its keys, in the order of the input's elements."""
Specs = Mapping[str, tuple[int | str | None, ...]]


@dataclass
class StateValue:
    """The current value of a state while the calls are lowered."""

    value: Any


def hub_model(function: Function, inputs: list[Feature], outputs: list[Feature], shapes: Specs, names: Names) -> ir.Model:
    """Convert the function to a hub model. A state becomes an input, and its updated value an output.

    `shapes` are the shapes of the inputs that the user specified. Dynamic sizes are named after the input and the axis.

    Raises:
        ConversionError: with every unsupported operator.
    """
    slots: dict[Hashable, Slot] = {}
    target = HubTarget("Core ML to ONNX", lambda key: _value_info(slots.get(key)))
    op = target.writer
    values = _Values(function, op)
    described = {f.name: f for f in inputs}
    graph_inputs = []
    for slot in function.block.inputs:
        if slot.type is None:
            raise UnsafeFileError(f"the input {slot.name} of the program is not a tensor")
        name = names.inputs[slot.name]
        value = op.input(name, _declared_dtype(slot, described[slot.name]), shapes.get(name) or _shape(slot, name, names))
        if described[slot.name].allowed:
            value.metadata_props[SIZES] = described[slot.name].allowed
        if described[slot.name].keys:
            value.metadata_props[KEYS] = json.dumps(described[slot.name].keys)
        graph_inputs.append(value)
        program_dtype = _dtype(slot)
        values[slot.index] = value if value.dtype == program_dtype else op.Cast(value, to=program_dtype)
    states = {}
    for name, slot in function.states.items():
        if slot.type is None:
            raise UnsafeFileError(f"the state {quoted(name)} of the program is not a tensor; get the file again")
        value = op.input(names.states[name][0], _dtype(slot), _shape(slot, name, names))
        graph_inputs.append(value)
        values[slot.index] = states[name] = StateValue(value)
    by_input_name = {v.name: v for v in graph_inputs}
    for name in names.outputs.values():
        if name not in by_input_name:
            op.reserve(name)
    lower(list(_calls(function.block, values, slots, inner=False)), rule, values, target)
    results = resolve([Ref(s.index) for s in function.block.outputs], values)
    by_name = {s.name: r for s, r in zip(function.block.outputs, results, strict=True)}
    graph_outputs = []
    for position, feature in enumerate(outputs):
        if names.outputs[feature.name] in by_input_name:
            graph_outputs.append(by_input_name[names.outputs[feature.name]])
            continue
        if feature.name not in by_name and position >= len(results):
            raise UnsafeFileError(f"the program does not compute the output {quoted(feature.name)}; get the file again")
        result = by_name[feature.name] if feature.name in by_name else results[position]
        if result is None:  # a string class label, which follows from the probabilities
            if len(outputs) == 1:
                raise UsageError(f"the only output, {feature.name}, is a class label, a string and not a tensor")
            continue
        result = op.constant(result)
        if feature.kind == "multiArrayType" and feature.dtype is not None:
            declared_dtype = ir.DataType.from_numpy(feature.dtype)
            result = result if result.dtype == declared_dtype else op.Cast(result, to=declared_dtype)
        graph_outputs.append(_name_dynamic_sizes(op.output(result, names.outputs[feature.name])))
    graph_outputs += [op.output(state.value, names.states[name][1]) for name, state in states.items()]
    model = op.model(graph_inputs, graph_outputs)
    labels = classes(function)
    if labels is not None:
        model.metadata_props["class_labels"] = json.dumps(labels)
    return model


def _name_dynamic_sizes(value: ir.Value) -> ir.Value:
    """Name the dynamic sizes of an output, as those of the inputs are named."""
    if value.shape is not None:
        sizes = [n if isinstance(n, int) else n.value or f"{value.name}_{axis}" for axis, n in enumerate(value.shape)]
        value.shape = ir.Shape(sizes)
    return value


class _Values(dict[Hashable, Any]):
    """Hub values by slot; constants are created on first use."""

    def __init__(self, function: Function, op: Any) -> None:
        super().__init__()
        self._constants, self._op = dict(function.constants), op
        self._names: dict[Hashable, str] = {}

    def literal(self, value: Any) -> Ref:
        """A reference to an inline constant."""
        key = ("literal", len(self._constants))
        self._constants[key] = value  # type: ignore[index]
        return Ref(key)

    def named(self, slot: Slot) -> Ref:
        self._names.setdefault(slot.index, slot.name)
        return Ref(slot.index)

    def __missing__(self, key: Any) -> Any:
        value = self._constants[key]
        if isinstance(value, bool | int | float | np.generic):
            value = np.asarray(value, {bool: np.bool_, int: np.int32, float: np.float32}.get(type(value)))
        if isinstance(value, np.ndarray) and value.dtype != object:
            weight = value.size > 16 or (value.dtype.kind == "f" and value.ndim > 0)  # weights are not shared even if equal
            value = self._op.constant(value, self._names.get(key, "") if weight else "")
        self[key] = value
        return value


def _calls(block: Block, values: _Values, slots: dict[Hashable, Slot], *, inner: bool) -> Iterator[Call]:
    for operation in block.operations:
        slots.update({s.index: s for s in operation.outputs})
        if inner and operation.op in STATE_WRITES:
            raise UsageError(
                f"{operation.op} {operation.name!r} writes a state inside a branch or loop, which ONNX cannot express"
            )
        yield call_of(
            operation,
            lambda item: values.named(item) if isinstance(item, Slot) else values.literal(item),
            lambda body: Body(
                tuple(s.index for s in body.inputs),
                list(_calls(body, values, slots, inner=True)),
                tuple(values.named(s) for s in body.outputs),
            ),
        )


def _dtype(slot: Slot) -> ir.DataType:
    assert slot.type is not None
    return ir.DataType.from_numpy(slot.type.dtype)


def _declared_dtype(slot: Slot, feature: Feature) -> ir.DataType:
    """The dtype of an input in the description, which may differ from the program's."""
    overrides = feature.kind == "multiArrayType" and feature.dtype is not None
    return ir.DataType.from_numpy(feature.dtype) if overrides and feature.dtype is not None else _dtype(slot)


def _shape(slot: Slot, name: str, names: Names) -> list[int | str | None] | None:
    if slot.type is None or slot.type.shape is None:
        return None
    rank = len(slot.type.shape)
    return [names.dim_name(name, axis, rank) if n is None else n for axis, n in enumerate(slot.type.shape)]


def _value_info(slot: Slot | None) -> tuple[str, ir.DataType | None, list[int | str | None] | None]:
    """The name, dtype and shape of a value in the program, as far as they are known."""
    if slot is None:
        return "", None, None
    if slot.type is None or slot.type.dtype.kind not in "biuf":
        return slot.name, None, None
    shape: list[int | str | None] | None = None if slot.type.shape is None else list(slot.type.shape)
    return slot.name, _dtype(slot), shape
