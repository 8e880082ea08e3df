"""Values that a model keeps between calls. ONNX models have no state: the value is an input, and its next value an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

_STATE = "a state: feed "


def next_name(name: str) -> str:
    """The name of the output that is the next call's value of the state input `name`."""
    return f"{name}.next"


def describe(value: ir.Value, initial: np.ndarray[Any, Any] | None) -> None:
    """Write into the description of a state input what it is for, and its value before the first call (None: unknown)."""
    value.doc_string = f"{_STATE}{next_name(str(value.name))} of the call before"
    if initial is not None and initial.size:
        first = initial.reshape(-1)[0]
        same = initial.dtype.kind in "biuf" and bool(np.all(initial == first))
        value.doc_string += f"; {first.item()} at first" if same else "; at first with the values of the source"


def notes(model: ir.Model) -> list[str]:
    """A note for the user on the states among a model's inputs."""
    found = [v for v in model.graph.inputs if (v.doc_string or "").startswith(_STATE)]
    if not found:
        return []
    others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return [f"the input {found[0].name}{others} is {found[0].doc_string}"]
