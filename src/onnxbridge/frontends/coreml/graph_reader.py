"""A Core ML program as the calls that the walker takes, and the hub model that they become."""

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
from onnxbridge.hub.ir.target import HubTarget
from onnxbridge.lowering import Body, Call, Ref, lower, resolve

WRITES = frozenset({"write_state", "coreml_update_state"})
SIZES = "onnxbridge.sizes"
"""Under this key an input's metadata tells the sizes that the model allows."""
KEYS = "onnxbridge.keys"
"""Under this one, the keys of a dictionary whose values, in their order, are the input's."""
Specs = Mapping[str, tuple[int | str | None, ...]]


@dataclass
class Held:
    """A state while the calls are lowered: what it holds at that point."""

    value: Any


def hub_model(
    function: Function, inputs: list[Feature], outputs: list[Feature], shapes: Specs, names: Names
) -> ir.Model:
    """The function as a hub model. A state becomes an input, and its last value an output.

    `shapes` are those of the inputs that the user gave; a size that only a run tells has the name of the input and the axis.

    Raises:
        ConversionError: with every operator that is in the way.
    """
    slots: dict[Hashable, Slot] = {}
    target = HubTarget("Core ML to ONNX", lambda key: _declared(slots.get(key)))
    op = target.writer
    values = _Values(function, op)
    described = {f.name: f for f in inputs}
    made = []
    for slot in function.block.inputs:
        if slot.type is None:
            raise UnsafeFileError(f"the input {slot.name} of the program is no tensor")
        name = names.inputs[slot.name]
        value = op.input(name, _outer(slot, described[slot.name]), shapes.get(name) or _shape(slot, name, names))
        if described[slot.name].allowed:
            value.metadata_props[SIZES] = described[slot.name].allowed
        if described[slot.name].keys:
            value.metadata_props[KEYS] = json.dumps(described[slot.name].keys)
        made.append(value)
        own = _dtype(slot)
        values[slot.index] = value if value.dtype == own else op.Cast(value, to=own)
    states = {}
    for name, slot in function.states.items():
        value = op.input(names.states[name][0], _dtype(slot), _shape(slot, name, names))
        made.append(value)
        values[slot.index] = states[name] = Held(value)
    passed = {v.name: v for v in made}
    for name in names.outputs.values():
        if name not in passed:
            op.reserve(name)
    lower(list(_calls(function.block, values, slots, inner=False)), rule, values, target)
    results = resolve([Ref(s.index) for s in function.block.outputs], values)
    by_name = {s.name: r for s, r in zip(function.block.outputs, results, strict=True)}
    given = []
    for position, feature in enumerate(outputs):
        if names.outputs[feature.name] in passed:
            given.append(passed[names.outputs[feature.name]])
            continue
        result = by_name[feature.name] if feature.name in by_name else results[position]
        if result is None:  # the name of a class, which follows from the probabilities
            if len(outputs) == 1:
                raise UsageError(f"the model gives the name of a class only, {feature.name}, which is a text and no tensor")
            continue
        result = op.constant(result)
        if feature.kind == "multiArrayType" and feature.dtype is not None:
            wanted = ir.DataType.from_numpy(feature.dtype)
            result = result if result.dtype == wanted else op.Cast(result, to=wanted)
        given.append(_sized(op.output(result, names.outputs[feature.name])))
    given += [op.output(held.value, names.states[name][1]) for name, held in states.items()]
    model = op.model(made, given)
    labels = classes(function)
    if labels is not None:
        model.metadata_props["class_labels"] = json.dumps(labels)
    return model


def _sized(value: ir.Value) -> ir.Value:
    """An output whose open sizes have names, as those of the inputs have."""
    if value.shape is not None:
        sizes = [n if isinstance(n, int) else n.value or f"{value.name}_{axis}" for axis, n in enumerate(value.shape)]
        value.shape = ir.Shape(sizes)
    return value


class _Values(dict[Hashable, Any]):
    """The hub's values by slot; a constant is made when it is first used."""

    def __init__(self, function: Function, op: Any) -> None:
        super().__init__()
        self._constants, self._op = dict(function.constants), op
        self._names: dict[Hashable, str] = {}

    def literal(self, value: Any) -> Ref:
        """A key for a constant that is given in place."""
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
            weight = value.size > 16 or (value.dtype.kind == "f" and value.ndim > 0)  # of equal ones, each is its own
            value = self._op.constant(value, self._names.get(key, "") if weight else "")
        self[key] = value
        return value


def _calls(block: Block, values: _Values, slots: dict[Hashable, Slot], *, inner: bool) -> Iterator[Call]:
    for operation in block.operations:
        slots.update({s.index: s for s in operation.outputs})
        if inner and operation.op in WRITES:
            raise UsageError(f"{operation.op} {operation.name!r} writes a state inside a branch or a loop, which ONNX cannot say")
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


def _outer(slot: Slot, feature: Feature) -> ir.DataType:
    """The type that the description gives an input, which may be another one than the program's."""
    outside = feature.kind == "multiArrayType" and feature.dtype is not None
    return ir.DataType.from_numpy(feature.dtype) if outside and feature.dtype is not None else _dtype(slot)


def _shape(slot: Slot, name: str, names: Names) -> list[int | str | None] | None:
    if slot.type is None or slot.type.shape is None:
        return None
    rank = len(slot.type.shape)
    return [names.open_size(name, axis, rank) if n is None else n for axis, n in enumerate(slot.type.shape)]


def _declared(slot: Slot | None) -> tuple[str, ir.DataType | None, list[int | str | None] | None]:
    """What the program says of a value: name, type, and the sizes that it knows."""
    if slot is None:
        return "", None, None
    if slot.type is None or slot.type.dtype.kind not in "biuf":
        return slot.name, None, None
    shape: list[int | str | None] | None = None if slot.type.shape is None else list(slot.type.shape)
    return slot.name, _dtype(slot), shape
