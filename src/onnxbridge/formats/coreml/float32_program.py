"""Converts an fp16 program to float32, with the constants that it had before rounding.

Rounding to float16 hides faults smaller than its error: a slightly wrong weight, or a channel of small values. Without rounding,
the program must agree with its source up to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxbridge.formats.coreml.mil_program import Array, Block, Operation, Slot

ConstantKey = tuple[str, str, int]
"""A constant, identified by its reader: the name of the operator, the parameter, and the index among its values."""
FLOAT16 = np.dtype(np.float16)
SUFFIX = "_cast_fp16"
"""The suffix that coremltools appends to the names of operators that it casts to float16, possibly followed by others."""
RELATIVE_ERROR, ABSOLUTE_ERROR = 2.0**-11, 2.0**-25
"""Bounds of the float16 rounding error: relative, and absolute for subnormal numbers."""
SMALLEST_NORMAL = float(np.finfo(np.float16).tiny)
CLAMPED_BELOW = 400
"""In arrays of fewer elements, coremltools raises subnormal numbers to the smallest normal one, so that no epsilon becomes 0."""


@dataclass
class Widening:
    """The result: how many constants have known originals, which of those do not match, and which are unknown."""

    known: int = 0
    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def widen(
    block: Block, constants: dict[int, Any], originals: Mapping[ConstantKey, Array], compressed: Collection[int], result: Widening
) -> None:
    """Convert a block and its inner blocks in place. `compressed` are the constants that were compressed after rounding, and are
    not compared with their originals."""
    _widen_block(block, constants, originals, compressed, result)
    for slot, value in constants.items():
        if _is_float16(value):
            constants[slot] = value.astype(np.float32)


def packed_wide(
    op: Operation, constants: Mapping[int, Any], originals: Mapping[ConstantKey, Array], result: Widening
) -> Operation | None:
    """The operator of a compressed weight with its float32 operands. None if these are not known: the weight was compressed
    after rounding, or was not rounded."""
    inputs = {name: [_value(v, constants) for v in items] for name, items in op.inputs.items()}
    float16_inputs = [(name, i) for name, items in inputs.items() for i, v in enumerate(items) if _is_float16(v)]
    original = {index: originals.get((op.name.partition(SUFFIX)[0], *index)) for index in float16_inputs}
    if not float16_inputs or any(o is None or o.shape != np.shape(inputs[name][i]) for (name, i), o in original.items()):
        return None
    for (name, i), value in original.items():
        assert value is not None
        _compare(np.asarray(inputs[name][i]), value, f"the {name} of {op.name}", result)
        inputs[name][i] = value
    return replace(op, inputs=inputs, outputs=_widen_slots(op.outputs))


def _value(item: Any, constants: Mapping[int, Any]) -> Any:
    return constants.get(item.index) if isinstance(item, Slot) else item


def _compare(value: Array, original: Array, description: str, result: Widening) -> None:
    result.known += 1
    if not is_rounded_to_float16(value, original):
        result.wrong.append(f"{description} is not its original value rounded to float16")


def singles(block: Block, constants: Mapping[int, Any]) -> dict[ConstantKey, Array]:
    """The float32 constants of a program, by their readers."""
    result: dict[ConstantKey, Array] = {}
    for op in block.operations:
        for name, items in op.inputs.items():
            for index, item in enumerate(items):
                value = _value(item, constants)
                if isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32:
                    result[op.name, name, index] = np.asarray(value)
        for inner in op.blocks:
            result |= singles(inner, constants)
    return result


def _widen_block(
    block: Block,
    constants: Mapping[int, Any],
    originals: Mapping[ConstantKey, Array],
    compressed: Collection[int],
    result: Widening,
) -> None:
    block.inputs, block.outputs = _widen_slots(block.inputs), _widen_slots(block.outputs)
    for op in block.operations:
        op.outputs = _widen_slots(op.outputs)
        for name, items in op.inputs.items():
            op.inputs[name] = [
                _widen_input(op, name, i, v, constants, originals, compressed, result) for i, v in enumerate(items)
            ]
        for inner in op.blocks:
            _widen_block(inner, constants, originals, compressed, result)


def _widen_slots(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(
        replace(s, type=replace(s.type, dtype=np.dtype(np.float32))) if s.type is not None and s.type.dtype == FLOAT16 else s
        for s in slots
    )


def _widen_input(
    op: Operation, name: str, index: int, item: Any, constants: Mapping[int, Any], originals: Mapping[ConstantKey, Array],
    compressed: Collection[int], result: Widening,
) -> Any:  # fmt: skip
    value = _value(item, constants)
    if name == "dtype" and value is not None and str(value) == "fp16":
        return "fp32"
    if not _is_float16(value):
        return item
    original = originals.get((op.name.partition(SUFFIX)[0], name, index))
    description = f"the {name} of {op.name}"
    if original is None or original.shape != np.asarray(value).shape:
        result.unknown.append(description)
        return np.asarray(value, np.float32)
    if not (isinstance(item, Slot) and item.index in compressed):
        _compare(np.asarray(value), original, description, result)
    return original


def is_rounded_to_float16(value: Array, original: Array) -> bool:
    """Whether float16 numbers are the float32 originals, each rounded to one of its neighbors."""
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(value.astype(np.float32) - original)
        is_close = (
            (error <= RELATIVE_ERROR * np.abs(original) + ABSOLUTE_ERROR)
            | (value == original.astype(np.float16))
            | (np.isnan(value) & np.isnan(original))
        )
    if value.size < CLAMPED_BELOW:
        is_close |= (np.abs(original) <= SMALLEST_NORMAL) & (np.abs(value) <= SMALLEST_NORMAL)
    return bool(is_close.all())


def _is_float16(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype == FLOAT16
