"""What a stateful program keeps between runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxbridge.errors import UsageError
from onnxbridge.formats.coreml.mil_program import Array, Slot


@dataclass
class State:
    """One tensor that the program reads and writes."""

    value: Array

    @classmethod
    def zeros(cls, slot: Slot) -> State:
        shape = slot.type.fixed() if slot.type else None
        if slot.type is None or shape is None:
            raise UsageError(f"the state {slot.name} has no fixed shape")
        return cls(np.zeros(shape, slot.type.dtype))
