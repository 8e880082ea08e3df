"""Inputs and dynamic sizes as users pass them to `convert`, in all their forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from onnxbridge.runtime.verify.samples.arrays import as_array, for_input
from onnxbridge.runtime.verify.samples.random_inputs import parse_dynamic, parse_specs


def parsed_inputs(inputs: Any) -> Any:
    """The `inputs` for the frontend: strings are parsed, everything else is passed on."""
    if isinstance(inputs, str) or (isinstance(inputs, (list, tuple)) and inputs and all(isinstance(i, str) for i in inputs)):
        return parse_specs(inputs)
    return inputs


def parsed_dynamic(dynamic: Any) -> tuple[Any, dict[str, tuple[int, int | None]]]:
    """The `dynamic` argument for the frontend, and the bounds of named sizes."""
    if isinstance(dynamic, str) or (isinstance(dynamic, (list, tuple)) and dynamic and all(isinstance(d, str) for d in dynamic)):
        return None, parse_dynamic(dynamic)
    return dynamic, {}


def example_feeds(inputs: Any, hub: ir.Model) -> dict[str, Any] | None:
    """The user's example inputs by the hub's names, None for shapes or values that do not match the hub's inputs one by one."""
    names = [str(v.name) for v in hub.graph.inputs]
    if isinstance(inputs, (tuple, list)):
        inputs = dict(zip(names, inputs, strict=False))
    given = inputs if isinstance(inputs, Mapping) else {}
    arrays = {name: as_array(value) for name, value in given.items() if not isinstance(value, (int, float))}
    fits = bool(names) and set(arrays) == set(names) and all(a is not None for a in arrays.values())
    return {str(v.name): for_input(arrays[str(v.name)], v) for v in hub.graph.inputs} if fits else None


def specs_of(hub: ir.Model) -> dict[str, Any]:
    """A hub model's inputs in the form of `convert`'s `inputs`."""
    return {
        str(v.name): (tuple(d if isinstance(d, int) else d.value for d in v.shape), str(v.dtype.numpy()))
        for v in hub.graph.inputs
        if v.shape is not None and v.dtype is not None
    }
