"""Whether compressed weights are what the compression makes of the weights, each by the bound that its own way has.

Outputs cannot tell: what four bits rightly lose there covers a scale that is off by a tenth. So the program is run with the
weights that were compressed, to rounding, and the compressed ones are compared with them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxbridge.backends.coreml.compression.compress import SMALLEST
from onnxbridge.errors import VerificationError
from onnxbridge.formats.coreml.mil_program import Block, Operation, Slot
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.mil.ops.quant import spread

Array = np.ndarray[Any, Any]
Key = tuple[str, str]
"""A weight by what it is for: the name of the operator's first output, and the parameter."""

HALF = "_cast_fp16"
"""What coremltools puts behind the names of operators that it makes compute in float16."""
LEVELS = {"linear8": 127, "linear4": 7}
ROUNDINGS = 4
"""A weight is rounded to its type when it is cast, its scale or entry when it is made, and their product when it is computed."""
NEARLY = 8 * 2.0**-24
"""The optimizer looks for the nearest entry by squares in float32, and takes one that is larger by this of the largest."""


def weights(program: Interpreter) -> dict[Key, int]:
    """The slots of the constants that operators compute with."""
    found = {}
    for op in _operations(program.block):
        for name, items in op.inputs.items():
            if len(items) == 1 and isinstance(items[0], Slot) and isinstance(program.constant(items[0].index), np.ndarray):
                found[op.outputs[0].name.removesuffix(HALF) if op.outputs else op.name, name] = items[0].index
    return found


def originals(plain: Any) -> dict[Key, Array]:
    """The weights of a model that is not compressed."""
    program = Interpreter(plain)
    return {key: program.constant(slot) for key, slot in weights(program).items()}


def check(packed: Any, given: Mapping[Key, Array], how: str, notes: list[str]) -> None:
    """Compare the weights of a compressed model with those before, and say how many they are.

    Raises:
        VerificationError: if one is not what the compression should make of it.
    """
    program = Interpreter(packed)
    if not told(program, given):
        raise VerificationError("coremltools compressed weights that the model before it had not")
    refuse(strayed(program, given, how))
    large = [slot for slot in set(weights(program).values()) if np.size(program.constant(slot)) > SMALLEST]
    done = sum(slot in program.packed for slot in large)
    if not large:
        notes.append(f"no weight has more than {SMALLEST} elements; coremltools stores only larger ones by {how}")
        return
    notes.append(
        f"{done} of the {len(large)} weights of more than {SMALLEST} elements are stored by {how}, which changes their values; "
        "each is what that makes of it. The outputs that are verified are those with the weights as they were"
    )


def refuse(wrong: list[str]) -> None:
    """Raise VerificationError for weights that are not what their compression makes of the source's."""
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise VerificationError(f"the compression of weights is wrong: {'; '.join(wrong[:3])}{more}")


def restored(program: Interpreter, given: Mapping[Key, Array]) -> Interpreter:
    """The program with the weights that were compressed as they were before."""
    slots = {slot: given[key] for key, slot in weights(program).items() if slot in program.packed}
    program.replace({slot: value.astype(program.constant(slot).dtype, copy=False) for slot, value in slots.items()})
    return program


def told(program: Interpreter, given: Mapping[Key, Array]) -> bool:
    """Whether every compressed weight of a program is among those given."""
    slots = weights(program).items()
    known = {slot for key, slot in slots if key in given and given[key].shape == program.constant(slot).shape}
    return known >= set(program.packed)


def strayed(program: Interpreter, given: Mapping[Key, Array], how: str) -> list[str]:
    """What is wrong with the weights of a compressed program; nothing where each is what `how` makes of the one given."""
    found = []
    for key, slot in weights(program).items():
        value, op = program.constant(slot), program.packed.get(slot)
        want = given.get(key)
        if want is None or want.shape != value.shape or want.dtype.kind != "f":
            continue
        want = want.astype(value.dtype)
        if op is None:
            if not np.array_equal(want, value, equal_nan=True):
                found.append(f"{_named(key)} is not compressed, and yet another one")
            continue
        parts = {name: program.constant(v[0].index) if isinstance(v[0], Slot) else v[0] for name, v in op.inputs.items()}
        reason = _reason(op.op, want.astype(np.float64), value.astype(np.float64), parts, how, _unit(value.dtype))
        if reason:
            found.append(f"{_named(key)} {reason}")
    return found


def _operations(block: Block) -> Iterator[Operation]:
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from _operations(inner)


def _named(key: Key) -> str:
    return f"the {key[1]} of {key[0]}"


def _unit(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) / 2


def _reason(kind: str, want: Array, value: Array, parts: Mapping[str, Any], how: str, unit: float) -> str:
    if kind == "constexpr_sparse_to_dense":
        return _sparse(want, value, int(how.removeprefix("sparse")) / 100)
    if kind == "constexpr_lut_to_dense":
        return _palette(want, value, np.ravel(parts["lut"]).astype(np.float64), unit)
    scale = np.asarray(parts["scale"])
    if kind == "constexpr_affine_dequantize" and scale.ndim:
        scale = scale.reshape([-1 if a == int(parts["axis"]) % want.ndim else 1 for a in range(want.ndim)])
    return _steps(want, value, scale.shape or (1,) * want.ndim, LEVELS[how], unit)


def _steps(want: Array, value: Array, blocks: tuple[int, ...], levels: int, unit: float) -> str:
    """Whole multiples of a step of which so many reach the largest weight of each block, and no more than half a step away."""
    sizes = [m for n, b in zip(want.shape, blocks, strict=True) for m in (b, n // b)]
    largest = np.abs(want).reshape(sizes).max(tuple(range(1, 2 * want.ndim, 2)))
    reach: Array = spread(largest, want.shape)
    off = np.abs(value - want) - reach * (0.5 / levels + ROUNDINGS * unit)
    if off.max(initial=0.0) > 0:
        place = np.unravel_index(int(off.argmax()), off.shape)
        steps = abs(value[place] - want[place]) * levels / float(reach[place])
        return f"is off by {steps:.2g} steps of its scale at {[int(i) for i in place]}, not by half of one"
    # the steps may be as many below zero as above it, or one more
    counted = (value * count / np.where(reach > 0, reach, 1) for count in (levels, levels + 0.5))
    if min(float(np.abs(c - np.rint(c)).max(initial=0.0)) for c in counted) > levels * ROUNDINGS * unit:
        return "has a scale that is not that of the largest weight beside it"
    return ""


def _palette(want: Array, value: Array, entries: Array, unit: float) -> str:
    """Each weight has the entry that is nearest to it: an entry that moves takes the places of weights between it and others."""
    ordered, largest = np.unique(entries), float(np.abs(want).max(initial=0.0))
    at = np.clip(np.searchsorted(ordered, want), 1, max(1, ordered.size - 1))
    nearest = np.minimum(np.abs(want - ordered[at - 1]), np.abs(want - ordered[np.minimum(at, ordered.size - 1)]))
    room = np.square(nearest + ROUNDINGS * unit * largest) + NEARLY * largest**2
    wrong = np.square(value - want) > room
    return f"has {int(wrong.sum())} places in its palette whose entry is not the nearest" if wrong.any() else ""


def _sparse(want: Array, value: Array, share: float) -> str:
    """The smallest weights are zero, as many as were asked for, and the others as they were."""
    kept = value != 0
    if not np.array_equal(value[kept], want[kept]):
        return "has weights that are neither zero nor what they were"
    if np.abs(want[~kept]).max(initial=0.0) > np.abs(want[kept]).min(initial=np.inf):
        return "has zeros for weights that are larger than others that are kept"
    if abs((~kept).mean() - share) > 0.01 + float(np.mean(want == 0)):
        return f"has {(~kept).mean():.1%} zeros, not {share:.0%}"
    return ""
