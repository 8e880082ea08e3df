"""A program in half precision made to compute in float32, with the constants that it had before they were rounded.

Rounding to float16 hides what is wrong by less than it: half of a weight's scale, a channel that counts little. Without it a
program has to give what its source gives, to the last bits of float32.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxbridge.formats.coreml.mil_program import Array, Block, Operation, Slot

Key = tuple[str, str, int]
"""A constant by what reads it: the name of the operator, the parameter, and the place among its values."""
HALF = np.dtype(np.float16)
SUFFIX = "_cast_fp16"
"""What coremltools puts behind the names of operators that it makes compute in float16, before others of its suffixes."""
UNIT, STEP = 2.0**-11, 2.0**-25
"""The most that rounding to float16 moves a number: of itself and, below the normal numbers, at all."""
LEAST = float(np.finfo(np.float16).tiny)
FEW = 400
"""In arrays of fewer elements coremltools makes numbers below the least normal one to it, lest an epsilon become 0."""


@dataclass
class Widening:
    """What came of it: how many constants are known as they were before, what is wrong with those, and which are not known."""

    known: int = 0
    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def widen(
    block: Block, constants: dict[int, Any], before: Mapping[Key, Array], packed: Collection[int], found: Widening
) -> None:
    """Change a program's block, and those inside it. `packed` are the constants that were compressed after the rounding, which
    are not compared with what they were."""
    _block(block, constants, before, packed, found)
    for slot, value in constants.items():
        if _is_half(value):
            constants[slot] = value.astype(np.float32)


def packed_wide(op: Operation, constants: Mapping[int, Any], before: Mapping[Key, Array], found: Widening) -> Operation | None:
    """The operator that a compressed weight is stored in, with the numbers that it had before they were rounded. None where these
    are not known: then the weight was compressed after the rounding, or there was none."""
    inputs = {name: [_held(v, constants) for v in items] for name, items in op.inputs.items()}
    halves = [(name, i) for name, items in inputs.items() for i, v in enumerate(items) if _is_half(v)]
    own = {place: before.get((op.name.partition(SUFFIX)[0], *place)) for place in halves}
    if not halves or any(o is None or o.shape != np.shape(inputs[name][i]) for (name, i), o in own.items()):
        return None
    for (name, i), value in own.items():
        assert value is not None
        _compared(np.asarray(inputs[name][i]), value, f"the {name} of {op.name}", found)
        inputs[name][i] = value
    return replace(op, inputs=inputs, outputs=_slots(op.outputs))


def _held(item: Any, constants: Mapping[int, Any]) -> Any:
    return constants.get(item.index) if isinstance(item, Slot) else item


def _compared(value: Array, own: Array, told: str, found: Widening) -> None:
    found.known += 1
    if not rounded(value, own):
        found.wrong.append(f"{told} is not what it was, rounded to float16")


def singles(block: Block, constants: Mapping[int, Any]) -> dict[Key, Array]:
    """The constants in float32 of a program, by what reads them."""
    found: dict[Key, Array] = {}
    for op in block.operations:
        for name, items in op.inputs.items():
            for place, item in enumerate(items):
                value = _held(item, constants)
                if isinstance(value, np.ndarray | np.generic) and value.dtype == np.float32:
                    found[op.name, name, place] = np.asarray(value)
        for inner in op.blocks:
            found |= singles(inner, constants)
    return found


def _block(
    block: Block, constants: Mapping[int, Any], before: Mapping[Key, Array], packed: Collection[int], found: Widening
) -> None:
    block.inputs, block.outputs = _slots(block.inputs), _slots(block.outputs)
    for op in block.operations:
        op.outputs = _slots(op.outputs)
        for name, items in op.inputs.items():
            op.inputs[name] = [_constant(op, name, i, v, constants, before, packed, found) for i, v in enumerate(items)]
        for inner in op.blocks:
            _block(inner, constants, before, packed, found)


def _slots(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    return tuple(
        replace(s, type=replace(s.type, dtype=np.dtype(np.float32))) if s.type is not None and s.type.dtype == HALF else s
        for s in slots
    )


def _constant(
    op: Operation, name: str, place: int, item: Any, constants: Mapping[int, Any], before: Mapping[Key, Array],
    packed: Collection[int], found: Widening,
) -> Any:  # fmt: skip
    value = _held(item, constants)
    if name == "dtype" and value is not None and str(value) == "fp16":
        return "fp32"
    if not _is_half(value):
        return item
    own = before.get((op.name.partition(SUFFIX)[0], name, place))
    told = f"the {name} of {op.name}"
    if own is None or own.shape != np.asarray(value).shape:
        found.unknown.append(told)
        return np.asarray(value, np.float32)
    if not (isinstance(item, Slot) and item.index in packed):
        _compared(np.asarray(value), own, told, found)
    return own


def rounded(value: Array, own: Array) -> bool:
    """Whether numbers in float16 are those of float32, each rounded to one of its neighbours."""
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(value.astype(np.float32) - own)
        near = (off <= UNIT * np.abs(own) + STEP) | (value == own.astype(np.float16)) | (np.isnan(value) & np.isnan(own))
    if value.size < FEW:
        near |= (np.abs(own) <= LEAST) & (np.abs(value) <= LEAST)
    return bool(near.all())


def _is_half(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic) and value.dtype == HALF
