"""Conversion of inputs and outputs between a model's description and the values of its program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxbridge.errors import UsageError
from onnxbridge.formats.coreml.mil_program import Array, Feature, Slot


def take(feature: Feature, slot: Slot, feeds: Mapping[str, Any]) -> Any:
    """The value of a program's input: cast to the feature's dtype, then to the program's."""
    if feature.name not in feeds:
        return _default(feature, slot)
    value = feeds[feature.name]
    if feature.kind == "imageType" and not isinstance(value, np.ndarray):
        value = _pixels(value, feature)
    array = _dictionary_to_vector(feature, value) if feature.keys and isinstance(value, Mapping) else np.asarray(value)
    if slot.type is None:
        return array
    array = _cast_exactly(feature, _cast_exactly(feature, array, feature.dtype), slot.type.dtype)
    if not slot.type.fits(array.shape):
        raise UsageError(f"the input {feature.name} has shape {array.shape}, expected {slot.type.shape}")
    return array


def _dictionary_to_vector(feature: Feature, table: Mapping[Any, Any]) -> Array:
    """The values of a dictionary in the order of the feature's keys, 0 for missing ones."""
    unknown = sorted(set(table) - set(feature.keys), key=str)
    if unknown:
        raise UsageError(f"the input {feature.name} has no key {unknown[0]!r}; its keys are {', '.join(map(str, feature.keys))}")
    return np.array([table.get(key, 0) for key in feature.keys], np.float64)


def _cast_exactly(feature: Feature, array: Array, dtype: np.dtype[Any] | None) -> Array:
    """Cast an array.

    Raises:
        UsageError: if a number cannot be represented in an integer dtype.
    """
    if dtype is None or array.dtype == dtype:
        return array
    converted: Array = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(converted, array):
        raise UsageError(f"the input {feature.name} has numbers that {dtype} cannot represent")
    return converted


def _default(feature: Feature, slot: Slot) -> Array:
    if not feature.optional or slot.type is None:
        raise UsageError(f"the input {feature.name} is missing")
    shape = slot.type.fixed()
    return np.full(feature.shape if shape is None else shape, feature.default or 0, slot.type.dtype)


def _pixels(image: Any, feature: Feature) -> Array:
    """A PIL image as (1, C, H, W) in the model's channel order."""
    if (image.height, image.width) != feature.shape:
        raise UsageError(f"the image {feature.name} is {image.height} x {image.width}, expected {feature.shape}")
    if feature.color.startswith("GRAYSCALE"):
        return np.asarray(image if feature.color == "GRAYSCALE_FLOAT16" else image.convert("L"), np.float32)[None, None]
    pixels: Array = np.asarray(image.convert("RGB"), np.float32).transpose(2, 0, 1)[None]
    return pixels[:, ::-1] if feature.color == "BGR" else pixels


def give(feature: Feature, by_name: Mapping[str, Any], results: list[Any], position: int) -> Any:
    """A model's output: found by its name in the program or, if the description renames it, by its position."""
    value = by_name[feature.name] if feature.name in by_name else results[position]
    if feature.kind == "multiArrayType" and feature.dtype is not None:
        return np.asarray(value).astype(feature.dtype, copy=False)
    if feature.kind == "doubleType":
        return float(value)
    if feature.kind == "stringType" and isinstance(value, np.ndarray):
        return str(value.item())
    return value
