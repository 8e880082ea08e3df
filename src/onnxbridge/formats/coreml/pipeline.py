"""Core ML's pipelines: models one after the other, whose outputs are the inputs of later ones by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Block, Feature, Function, Operation, Slot

TYPES = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "int32": "int32", "int64": "int64"}
Part = tuple[Function, list[Feature]]
"""A model's function, and the features that it gives."""


def joined(parts: Iterable[Part], inputs: list[Feature], outputs: list[Feature]) -> Function:
    """The functions of the models as one.

    Raises:
        UnsafeFileError: if a model takes what no model before it gives.
    """
    whole = Function("main", Block(), {}, {}, 0)
    values: dict[str, Slot] = {}
    taken: dict[str, Slot] = {}
    for function, gives in parts:
        moved = _Moved(whole.slots)
        whole.slots += function.slots
        whole.constants |= {moved.offset + index: value for index, value in function.constants.items()}
        whole.states |= {name: moved.slot(slot) for name, slot in function.states.items()}
        block = moved.block(function.block)
        for slot in block.inputs:
            if slot.name in values:
                whole.block.operations.append(_linked(values[slot.name], slot))
            elif any(f.name == slot.name for f in inputs):
                taken[slot.name] = values[slot.name] = slot
            else:
                raise UnsafeFileError(f"a model of the pipeline takes {slot.name}, which nothing before it gives")
        whole.block.operations += block.operations
        by_name = {slot.name: slot for slot in block.outputs}
        values |= {f.name: by_name.get(f.name, block.outputs[i]) for i, f in enumerate(gives) if i < len(block.outputs)}
    missing = [f.name for f in outputs if f.name not in values] + [f.name for f in inputs if f.name not in taken]
    if missing:
        raise UnsafeFileError(f"no model of the pipeline has to do with {', '.join(missing)}")
    whole.block.inputs = tuple(taken[f.name] for f in inputs)
    whole.block.outputs = tuple(replace(values[f.name], name=f.name) for f in outputs)
    return whole


def _linked(given: Slot, taken: Slot) -> Operation:
    """What one model gives in the type that a later one takes it in."""
    if taken.type is None or taken.type.dtype == object:
        return Operation("identity", taken.name, {"x": [given]}, (taken,))
    return Operation("cast", taken.name, {"x": [given], "dtype": [TYPES[taken.type.dtype.name]]}, (taken,))


class _Moved:
    """A function's blocks with every slot counted from another number on."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def slot(self, slot: Slot) -> Slot:
        return replace(slot, index=slot.index + self.offset)

    def block(self, block: Block) -> Block:
        return Block(tuple(map(self.slot, block.inputs)), list(map(self._operation, block.operations)),
                     tuple(map(self.slot, block.outputs)))  # fmt: skip

    def _operation(self, op: Operation) -> Operation:
        inputs: dict[str, Any] = {
            name: [self.slot(v) if isinstance(v, Slot) else v for v in items] for name, items in op.inputs.items()
        }
        blocks = tuple(map(self.block, op.blocks))
        return Operation(op.op, op.name, inputs, tuple(map(self.slot, op.outputs)), blocks)
