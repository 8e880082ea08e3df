"""Runs Core ML programs with NumPy, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from onnxbridge.errors import ConversionError, OnnxbridgeError, Problem, Unsupported, UsageError
from onnxbridge.formats.coreml.features import give, take
from onnxbridge.formats.coreml.float32_program import ConstantKey, Widening, packed_wide, singles, widen
from onnxbridge.formats.coreml.mil_program import Block, Operation, Slot, classes
from onnxbridge.formats.coreml.reader import read
from onnxbridge.lowering import Deferred, coerce
from onnxbridge.runtime.mil.compiler import DIRECTION, At, Compiler, Step, Steps, widened
from onnxbridge.runtime.mil.ops import rule as rules
from onnxbridge.runtime.mil.state import State


class Interpreter:
    """Runs a Core ML program: an .mlpackage, an `MLModel`, its specification or a MIL program in memory.

    `function` selects one of the model's functions, by default the model's default function. Raises `ConversionError` with
    every operator that has no rule. `classes` are the labels of a classifier. `states` are initially zero and stored between
    runs; `reset` sets them to zero. `packed` are the constexpr operators of compressed weights, by the slot of the weight.
    """

    def __init__(self, source: Any, *, function: str = "") -> None:
        self._function, self.inputs, self.outputs = read(source, function)
        self.classes = classes(self._function)
        self._constants: dict[int, Any] = dict(self._function.constants)
        self.packed: dict[int, Operation] = {}
        self._steps = self._compiled(self._function.block)
        self._take_packed(self._function.block)
        self.reset()

    def reset(self) -> None:
        """Set every state to zero."""
        self.states = {name: State.zeros(slot) for name, slot in self._function.states.items()}

    @property
    def block(self) -> Block:
        """The main block, without the operators of compressed weights."""
        return self._function.block

    def constant(self, slot: int) -> Any:
        """The constant in a slot, None if the slot is not a constant."""
        return self._constants.get(slot)

    def replace(self, constants: Mapping[int, Any]) -> None:
        """Replace constants, by slot, by others of the same dtypes and shapes."""
        self._constants |= constants
        self._steps = self._compiled(self._function.block)

    def singles(self) -> dict[ConstantKey, Any]:
        """The float32 constants, by their readers."""
        return singles(self._function.block, self._constants)

    def widen(self, before: Mapping[ConstantKey, Any]) -> Widening:
        """Convert the fp16 program to float32 in place, with the constants from before rounding."""
        found = Widening()
        for op in self.packed.values():
            wide = packed_wide(op, self._constants, before, found)
            if wide is not None:
                self._compiled(Block(operations=[wide]))
        widen(self._function.block, self._constants, before, self.packed, found)
        self._steps = self._compiled(self._function.block)
        return found

    def run(self, feeds: Mapping[str, Any], see: Callable[[str, Any], None] | None = None) -> dict[str, Any]:
        """Compute the model's outputs from its inputs, both by the names of the model's description.

        Arrays are cast to the declared dtypes as Core ML does; images are arrays (N, C, H, W) or PIL images. `see` is called with
        the name and the value of each result of the program's operators.
        """
        unknown = sorted(set(feeds) - {f.name for f in self.inputs})
        if unknown:
            raise UsageError(f"the model has no input {', '.join(unknown)}, only {', '.join(f.name for f in self.inputs)}")
        block = self._function.block
        values: list[Any] = [None] * self._function.slots
        for index, constant in self._constants.items():
            values[index] = constant
        for name, slot in self._function.states.items():
            values[slot.index] = self.states[name]
        described = {f.name: f for f in self.inputs}
        for slot in block.inputs:
            values[slot.index] = take(described[slot.name], slot, feeds)
        with np.errstate(all="ignore"):
            results = self._run(self._steps, values, see)
        by_name = {slot.name: result for slot, result in zip(block.outputs, results, strict=True)}
        return {f.name: give(f, by_name, list(results), i) for i, f in enumerate(self.outputs)}

    def _compiled(self, block: Block) -> Steps:
        """The block ready to run; compressed weights are computed once, as Core ML does it when it loads a model."""
        return Compiler(self._constants, lambda step: self._apply(step, self._constants)).compile(block)

    def _take_packed(self, block: Block) -> None:
        """Take the operators of compressed weights out of a block, and of those inside it."""
        for op in block.operations:
            for inner in op.blocks:
                self._take_packed(inner)
            if _decompresses(op):
                self.packed[op.outputs[-1].index] = op
        block.operations = [op for op in block.operations if not _decompresses(op)]

    def _run(self, block: Steps, values: Any, see: Callable[[str, Any], None] | None = None) -> list[Any]:
        for step in block.steps:
            self._apply(step, values)
            if see is not None:
                for slot in step.outputs:
                    see(slot.name, values[slot.index])
            for index in step.done:
                values[index] = None
        return [values[index] for index in block.outputs]

    def _inner(self, block: Steps, values: Any, *arguments: Any) -> list[Any]:
        for index, value in zip(block.inputs, arguments, strict=True):
            values[index] = value
        return self._run(block, values)

    def _apply(self, step: Step, values: Any) -> None:
        call, moves = step.call, step.rule.kind == "move"
        try:
            args = [self._argument(a, values, moves) for a in step.args]
            result = step.rule.lower(*args, **{name: self._argument(a, values, moves) for name, a in step.attrs.items()})
        except OnnxbridgeError:
            raise
        except Unsupported as error:
            raise ConversionError(DIRECTION, [Problem(call.op, error.reason, error.hint, (call.location,))]) from error
        except Exception as error:
            raise OnnxbridgeError(f"{call.op} {call.location.node!r}: {type(error).__name__}: {error}") from error
        results = result if isinstance(result, tuple) else (result,)
        for slot, value in zip(step.outputs, results, strict=True):
            values[slot.index] = _typed(step, slot, value)

    def _argument(self, argument: Any, values: Any, moves: bool) -> Any:
        if isinstance(argument, At):
            return widened(values[argument], moves)
        if isinstance(argument, Deferred):
            return coerce(widened(values[argument.value], moves), argument.form, argument.name)
        if isinstance(argument, list):
            return [self._argument(a, values, moves) for a in argument]
        return partial(self._inner, argument, values) if isinstance(argument, Steps) else argument


def _typed(step: Step, slot: Slot, value: Any) -> Any:
    """Cast a result to its declared dtype: floats to float16, indices to int32. Any other difference is an error."""
    if slot.type is None or not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    want = slot.type.dtype
    name = f"{step.call.op} {step.call.location.node!r}"
    if array.dtype != want:
        whole = step.rule.kind == "mixed" and want.kind == "i" and np.array_equal(array, np.trunc(array))
        if array.dtype.kind != want.kind and {array.dtype.kind, want.kind} != {"i", "u"} and not whole:
            raise OnnxbridgeError(f"{name}: result has dtype {array.dtype}, the program declares {want}")
        array = array.astype(want)
    if not slot.type.fits(array.shape):
        raise OnnxbridgeError(f"{name}: result has shape {array.shape}, the program declares {slot.type.shape}")
    return array


def _decompresses(op: Operation) -> bool:
    found = rules.get(op.op)
    return found is not None and found.kind == "weights"
