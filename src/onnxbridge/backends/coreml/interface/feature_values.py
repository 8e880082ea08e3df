"""Conversion of inputs, outputs and states between the hub's arrays and Core ML's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.coreml.model_options import Image
from onnxbridge.errors import UsageError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Feature:
    """An input or output: its name, dtype and shape in the hub, and its name in Core ML. A scalar has shape (1,) in Core ML."""

    hub: str
    coreml: str
    dtype: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class GrowingState:
    """How a state grows: along `axis`, a dimension named `label`, by `steps` elements per run (a number or the name of a
    dimension), up to `length` elements."""

    axis: int
    label: str
    steps: int | str
    length: int


def to_core_ml_input(array: Array, feature: Feature, image: Image | None = None) -> Array:
    """Convert an input to Core ML's form: a scalar to (1,), integers and bools to int32, an image to its pixels.

    Raises:
        UsageError: if a number does not fit.
    """
    array = array.reshape(1) if array.ndim == 0 else array
    if image is not None:
        return image.pixels(array.astype(np.float32))
    if array.dtype.kind in "iu" and array.dtype.itemsize >= 4:
        limits = np.iinfo(np.int32)
        if array.size and (array.max() > limits.max or array.min() < limits.min):
            raise UsageError(f"the input {feature.hub} contains an integer outside of int32, the widest integer dtype of Core ML")
    if array.dtype.kind in "iub":
        return array.astype(np.int32)
    if array.dtype == np.float16:
        return array
    with np.errstate(over="ignore"):
        single = array.astype(np.float32)
    if not np.array_equal(np.isinf(single), np.isinf(array)):
        raise UsageError(f"the input {feature.hub} contains a number outside of float32, the widest float dtype of Core ML")
    return single


def state_value(past: Array, growth: GrowingState | None, dtype: Any = np.float16) -> Array:
    """A state's value: `past` itself or, for a growing state, `past` padded with zeros to the state's length.

    Raises:
        UsageError: if it is longer than the state.
    """
    past = past.astype(dtype)
    if growth is None:
        return past
    if past.shape[growth.axis] > growth.length:
        raise UsageError(f"a past of length {past.shape[growth.axis]} does not fit the state, whose length is {growth.length}")
    padded: Array = np.zeros([growth.length if a == growth.axis else n for a, n in enumerate(past.shape)], dtype)
    padded[tuple(map(slice, past.shape))] = past
    return padded


def state_positions(
    states: Sequence[Feature], feeds: Mapping[str, Any], growing_states: Mapping[str, GrowingState], positions: Mapping[str, str]
) -> dict[str, Array]:
    """The position inputs: how many elements of the growing states are filled.

    Raises:
        UsageError: if states that share a named dimension have different lengths.
    """
    found: dict[str, Array] = {}
    for feature in states:
        growth = growing_states.get(feature.hub)
        if growth is not None:
            name, length = positions[growth.label], np.array([np.shape(feeds[feature.hub])[growth.axis]], np.int32)
            if not np.array_equal(found.setdefault(name, length), length):
                other = found[name][0]
                raise UsageError(f"{feature.hub} has {length[0]} elements, another state {other}; both must be {growth.label}")
    return found


def to_hub_output(array: Array, feature: Feature) -> Array:
    """Convert an output to the hub's shape and dtype."""
    array = array.reshape(()) if not feature.shape and array.size == 1 else array
    return array.astype(ir.DataType[feature.dtype].numpy(), copy=False)
