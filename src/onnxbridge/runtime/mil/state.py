"""States that a program stores between runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxbridge.errors import UsageError
from onnxbridge.formats.coreml.mil_program import Array, Slot


@dataclass
class State:
    """One tensor that the program reads and updates."""

    value: Array

    @classmethod
    def zeros(cls, slot: Slot) -> State:
        shape = slot.type.fixed() if slot.type else None
        if slot.type is None or shape is None:
            raise UsageError(f"the state {slot.name} has no static shape")
        return cls(np.zeros(shape, slot.type.dtype))
