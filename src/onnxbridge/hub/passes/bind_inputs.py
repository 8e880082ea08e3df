"""Binds inputs to constant numbers given by the user, such as a sample rate, so that they are known at conversion time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError

_KEY = "onnxbridge.fixed"


def is_number(specification: Any) -> bool:
    """Whether an input's specification is a number, rather than a shape or an array."""
    return isinstance(specification, (int, float))


def bind_inputs(model: ir.Model, numbers: Mapping[str, int | float]) -> None:
    """Replace inputs by constants, in place.

    Raises:
        UsageError: if the input does not exist, its dtype cannot represent the number, or its shape is dynamic.
    """
    inputs = {str(v.name): v for v in model.graph.inputs}
    filled: dict[str, np.ndarray[Any, Any]] = {}
    for name, number in numbers.items():
        if name not in inputs:
            raise UsageError(f"{name}={number}: the model has no input {name!r}; it has {', '.join(inputs)}")
        value = inputs[name]
        filled[name] = _filled(value, number)
        value.const_value = ir.tensor(filled[name], name=name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    model.meta[_KEY] = filled


def bound_inputs(model: ir.Model | None) -> dict[str, np.ndarray[Any, Any]]:
    """The inputs of the source that were bound to constants, and their values."""
    found: dict[str, np.ndarray[Any, Any]] = {} if model is None else model.meta.get(_KEY, {})
    return found


def notes(model: ir.Model) -> list[str]:
    """Notes for the user on the bound inputs."""
    return [f"the input {name} is bound to {array.reshape(-1)[0]}" for name, array in bound_inputs(model).items() if array.size]


def _filled(value: ir.Value, number: int | float) -> np.ndarray[Any, Any]:
    if value.dtype is None or value.dtype == ir.DataType.STRING:
        raise UsageError(f"{value.name}={number}: the input is not numeric")
    shape = tuple(value.shape) if value.shape is not None else (None,)
    if not all(isinstance(d, int) for d in shape):
        raise UsageError(f"{value.name}={number}: the input's shape is dynamic; only inputs with a static shape can be bound")
    dtype = np.dtype(value.dtype.numpy())
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        representable = number == int(number) and info.min <= number <= info.max
    else:
        representable = number in (0, 1) if dtype.kind == "b" else bool(np.isfinite(np.asarray(float(number)).astype(dtype)))
    if not representable:
        raise UsageError(f"{value.name}={number}: the input has dtype {dtype}, which cannot represent it")
    return np.full(shape, number, dtype)
