"""Checks that compressed weights match the original ones, within the error bound of each compression method.

Outputs cannot show this: the expected error of four bits hides a scale that is off by a tenth. So the program is verified with
the original weights, and the compressed weights are compared with them one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from onnxbridge.backends.coreml.compression.compress import SMALLEST
from onnxbridge.errors import VerificationError
from onnxbridge.formats.coreml.mil_program import Block, Operation, Slot
from onnxbridge.runtime.mil import Interpreter
from onnxbridge.runtime.mil.ops.quant import repeat_blocks

Array = np.ndarray[Any, Any]
WeightKey = tuple[str, str]
"""A weight, identified by the name of the operator's first output and the parameter."""

FP16_SUFFIX = "_cast_fp16"
"""The suffix that coremltools appends to the names of operators that it casts to float16."""
LEVELS = {"linear8": 127, "linear4": 7}
ROUNDINGS = 4
"""Rounding errors of one weight: its cast, its scale or palette entry, and their product."""
PALETTE_TOLERANCE = 8 * 2.0**-24
"""The optimizer finds the nearest entry by squared distances in float32, whose error is this share of the largest square."""


def weight_slots(program: Interpreter) -> dict[WeightKey, int]:
    """The slots of the constant operands of all operators."""
    found = {}
    for op in _operations(program.block):
        for name, items in op.inputs.items():
            if len(items) == 1 and isinstance(items[0], Slot) and isinstance(program.constant(items[0].index), np.ndarray):
                found[op.outputs[0].name.removesuffix(FP16_SUFFIX) if op.outputs else op.name, name] = items[0].index
    return found


def original_weights(plain: Any) -> dict[WeightKey, Array]:
    """The weights of an uncompressed model."""
    program = Interpreter(plain)
    return {key: program.constant(slot) for key, slot in weight_slots(program).items()}


def check(packed: Any, originals: Mapping[WeightKey, Array], method: str, notes: list[str]) -> None:
    """Compare the weights of a compressed model with the original ones, and note how many are compressed.

    Raises:
        VerificationError: if one does not match.
    """
    program = Interpreter(packed)
    if not covers_compressed_weights(program, originals):
        raise VerificationError("coremltools compressed weights that the uncompressed model does not have")
    raise_compression_errors(compression_errors(program, originals, method))
    large = [slot for slot in set(weight_slots(program).values()) if np.size(program.constant(slot)) > SMALLEST]
    unchanged = {slot for key, slot in weight_slots(program).items() if _is_unchanged(program, slot, originals.get(key))}
    done = sum(slot in program.packed and slot not in unchanged for slot in large)
    if not large:
        notes.append(f"no weight has more than {SMALLEST} elements; {method} compresses only larger ones")
        return
    notes.append(
        f"{done} of the {len(large)} weights of more than {SMALLEST} elements are compressed by {method}, which changes their "
        "values; each was checked against its error bound. Outputs are verified with the uncompressed weights"
    )


def raise_compression_errors(wrong: list[str]) -> None:
    """Raise VerificationError if there are any errors."""
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise VerificationError(f"wrong weight compression: {'; '.join(wrong[:3])}{more}")


def restore_weights(program: Interpreter, originals: Mapping[WeightKey, Array]) -> Interpreter:
    """Replace the compressed weights of the program by the original ones."""
    slots = {slot: originals[key] for key, slot in weight_slots(program).items() if slot in program.packed}
    program.replace({slot: value.astype(program.constant(slot).dtype, copy=False) for slot, value in slots.items()})
    return program


def covers_compressed_weights(program: Interpreter, originals: Mapping[WeightKey, Array]) -> bool:
    """Whether the original value of every compressed weight is known."""
    slots = weight_slots(program).items()
    known = {slot for key, slot in slots if key in originals and originals[key].shape == program.constant(slot).shape}
    return known >= set(program.packed)


def compression_errors(program: Interpreter, originals: Mapping[WeightKey, Array], method: str) -> list[str]:
    """The errors of a compressed program's weights, empty if all match the original ones."""
    found = []
    for key, slot in weight_slots(program).items():
        value, op = program.constant(slot), program.packed.get(slot)
        expected = originals.get(key)
        if expected is None or expected.shape != value.shape or expected.dtype.kind != "f":
            continue
        if _is_unchanged(program, slot, expected):
            continue
        expected = expected.astype(value.dtype)
        if op is None:
            found.append(f"{_describe(key)} is not compressed, but differs from the original")
            continue
        parts = {name: program.constant(v[0].index) if isinstance(v[0], Slot) else v[0] for name, v in op.inputs.items()}
        reason = _error(op.op, expected.astype(np.float64), value.astype(np.float64), parts, method, _unit(value.dtype))
        if reason:
            found.append(f"{_describe(key)} {reason}")
    return found


def _is_unchanged(program: Interpreter, slot: int, expected: Array | None) -> bool:
    """Whether a weight has its original value: it is not compressed, or was quantized in the source already. Pruned weights are
    always checked, since pruning has to set the requested share to zero."""
    value, op = program.constant(slot), program.packed.get(slot)
    if expected is None or expected.shape != value.shape or (op is not None and op.op == "constexpr_sparse_to_dense"):
        return False
    return np.array_equal(expected.astype(value.dtype), value, equal_nan=True)


def _operations(block: Block) -> Iterator[Operation]:
    for op in block.operations:
        yield op
        for inner in op.blocks:
            yield from _operations(inner)


def _describe(key: WeightKey) -> str:
    return f"the {key[1]} of {key[0]}"


def _unit(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) / 2


def _error(op_type: str, expected: Array, value: Array, parts: Mapping[str, Any], method: str, unit: float) -> str:
    if op_type == "constexpr_sparse_to_dense":
        return _sparse_error(expected, value, int(method.removeprefix("sparse")) / 100)
    if op_type == "constexpr_lut_to_dense":
        return _palette_error(expected, value, np.ravel(parts["lut"]).astype(np.float64), unit)
    scale = np.asarray(parts["scale"])
    if op_type == "constexpr_affine_dequantize" and scale.ndim:
        scale = scale.reshape([-1 if a == int(parts["axis"]) % expected.ndim else 1 for a in range(expected.ndim)])
    return _linear_error(expected, value, scale.shape or (1,) * expected.ndim, LEVELS[method], unit)


def _linear_error(expected: Array, value: Array, blocks: tuple[int, ...], levels: int, unit: float) -> str:
    """Check linear quantization: multiples of a step that is the largest weight of the block divided by `levels`, and at most
    half a step from the original."""
    sizes = [m for n, b in zip(expected.shape, blocks, strict=True) for m in (b, n // b)]
    largest = np.abs(expected).reshape(sizes).max(tuple(range(1, 2 * expected.ndim, 2)))
    reach: Array = repeat_blocks(largest, expected.shape)
    off = np.abs(value - expected) - reach * (0.5 / levels + ROUNDINGS * unit)
    if off.max(initial=0.0) > 0:
        index = np.unravel_index(int(off.argmax()), off.shape)
        steps = abs(value[index] - expected[index]) * levels / float(reach[index])
        return f"is off by {steps:.2g} quantization steps at {[int(i) for i in index]}; the bound is 0.5"
    # there are as many levels below zero as above it, or one more
    quantized = (value * count / np.where(reach > 0, reach, 1) for count in (levels, levels + 0.5))
    if min(float(np.abs(q - np.rint(q)).max(initial=0.0)) for q in quantized) > levels * ROUNDINGS * unit:
        return "has a scale that does not match the largest weight of its block"
    return ""


def _palette_error(expected: Array, value: Array, entries: Array, unit: float) -> str:
    """Check palettization: each weight must have the palette entry that is nearest to it."""
    ordered, largest = np.unique(entries), float(np.abs(expected).max(initial=0.0))
    at = np.clip(np.searchsorted(ordered, expected), 1, max(1, ordered.size - 1))
    nearest = np.minimum(np.abs(expected - ordered[at - 1]), np.abs(expected - ordered[np.minimum(at, ordered.size - 1)]))
    bound = np.square(nearest + ROUNDINGS * unit * largest) + PALETTE_TOLERANCE * largest**2
    wrong = np.square(value - expected) > bound
    return f"has {int(wrong.sum())} elements whose palette entry is not the nearest" if wrong.any() else ""


def _sparse_error(expected: Array, value: Array, share: float) -> str:
    """Check pruning: the requested share of weights, the smallest ones, is zero, and the others are unchanged."""
    nonzero = value != 0
    if not np.array_equal(value[nonzero], expected[nonzero]):
        return "has weights that are neither zero nor unchanged"
    if np.abs(expected[~nonzero]).max(initial=0.0) > np.abs(expected[nonzero]).min(initial=np.inf):
        return "has zeros for weights that are larger than some nonzero ones"
    if abs((~nonzero).mean() - share) > 0.01 + float(np.mean(expected == 0)):
        return f"has {(~nonzero).mean():.1%} zeros, not {share:.0%}"
    return ""
