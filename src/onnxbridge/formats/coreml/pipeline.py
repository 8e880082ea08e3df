"""Core ML pipelines: a sequence of models, whose outputs are the inputs of later ones by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Block, Feature, Function, Operation, Slot

TYPES = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "int32": "int32", "int64": "int64"}
Part = tuple[Function, list[Feature]]
"""A model's function, and its output features."""


def join_functions(parts: Iterable[Part], inputs: list[Feature], outputs: list[Feature]) -> Function:
    """Join the functions of the models into one.

    Raises:
        UnsafeFileError: if a model's input is neither an input of the pipeline nor an output of an earlier model.
    """
    joined = Function("main", Block(), {}, {}, 0)
    values: dict[str, Slot] = {}
    pipeline_inputs: dict[str, Slot] = {}
    for function, model_outputs in parts:
        shifted = _SlotOffset(joined.slots)
        joined.slots += function.slots
        joined.constants |= {shifted.offset + index: value for index, value in function.constants.items()}
        joined.states |= {name: shifted.slot(slot) for name, slot in function.states.items()}
        block = shifted.block(function.block)
        for slot in block.inputs:
            if slot.name in values:
                joined.block.operations.append(_connect(values[slot.name], slot))
            elif any(f.name == slot.name for f in inputs):
                pipeline_inputs[slot.name] = values[slot.name] = slot
            else:
                raise UnsafeFileError(f"a model of the pipeline has the input {slot.name}, which no earlier model computes")
        joined.block.operations += block.operations
        by_name = {slot.name: slot for slot in block.outputs}
        values |= {f.name: by_name.get(f.name, block.outputs[i]) for i, f in enumerate(model_outputs) if i < len(block.outputs)}
    missing = [f.name for f in outputs if f.name not in values] + [f.name for f in inputs if f.name not in pipeline_inputs]
    if missing:
        raise UnsafeFileError(f"no model of the pipeline has an input or output {', '.join(missing)}")
    joined.block.inputs = tuple(pipeline_inputs[f.name] for f in inputs)
    joined.block.outputs = tuple(replace(values[f.name], name=f.name) for f in outputs)
    return joined


def _connect(source: Slot, target: Slot) -> Operation:
    """Cast an output of one model to the dtype of a later model's input."""
    if target.type is None or target.type.dtype == object:
        return Operation("identity", target.name, {"x": [source]}, (target,))
    return Operation("cast", target.name, {"x": [source], "dtype": [TYPES[target.type.dtype.name]]}, (target,))


class _SlotOffset:
    """Adds an offset to every slot index of a function's blocks."""

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
