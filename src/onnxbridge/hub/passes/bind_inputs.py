"""Inputs that the user fixes to a number, such as a sample rate: what the model decides by them is then known when converting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

_KEY = "onnxbridge.fixed"


def is_number(given: Any) -> bool:
    """Whether what is given of an input is a number, rather than a shape or an array."""
    return isinstance(given, (int, float))


def fix(model: ir.Model, numbers: Mapping[str, int | float]) -> None:
    """Make constants of these inputs, in place.

    Raises:
        UsageError: if there is no such input, its type does not hold the number, or its size is not known.
    """
    inputs = {str(v.name): v for v in model.graph.inputs}
    for name, number in numbers.items():
        if name not in inputs:
            raise UsageError(f"{name}={number}: the model has no input {name!r}; it has {', '.join(inputs)}")
        value = inputs[name]
        value.const_value = ir.tensor(_filled(value, number), name=name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    model.meta[_KEY] = {name: np.asarray(inputs[name].const_value) for name in numbers}


def fixed(model: ir.Model | None) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of the source that are constants of the model, and what they are."""
    found: dict[str, np.ndarray[Any, Any]] = {} if model is None else model.meta.get(_KEY, {})
    return found


def notes(model: ir.Model) -> list[str]:
    """What a user should know of them."""
    return [f"the input {name} is fixed to {array.reshape(-1)[0]}" for name, array in fixed(model).items() if array.size]


def _filled(value: ir.Value, number: int | float) -> np.ndarray[Any, Any]:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        raise UsageError(f"{value.name}={number}: the input is no number")
    shape = tuple(value.shape) if value.shape is not None else (None,)
    if not all(isinstance(d, int) for d in shape):
        raise UsageError(f"{value.name}={number}: the input's size is not known; only one of a known size can be fixed")
    dtype = np.dtype(value.dtype.numpy())
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        holds = number == int(number) and info.min <= number <= info.max
    else:
        holds = number in (0, 1) if dtype.kind == "b" else bool(np.isfinite(np.asarray(float(number)).astype(dtype)))
    if not holds:
        raise UsageError(f"{value.name}={number}: the input is {dtype}")
    return np.full(shape, number, dtype)
