"""Inputs and dynamic sizes as users pass them to `convert`, in all their forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

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
    arrays = {name: _as_array(value) for name, value in given.items() if not isinstance(value, (int, float))}
    fits = bool(names) and set(arrays) == set(names) and all(a is not None for a in arrays.values())
    return {str(v.name): _in_parts(arrays[str(v.name)], v) for v in hub.graph.inputs} if fits else None


def _in_parts(array: Any, value: ir.Value) -> Any:
    """An array for a hub input: complex numbers become a last axis of 2 where the input is real."""
    if array.dtype.kind != "c" or value.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return array
    return np.stack([array.real, array.imag], -1)


def _as_array(value: Any) -> Any:
    """A framework's tensor as an array, None for anything else (a spec, a nested structure)."""
    from onnxbridge.hub.ir import strings

    if not isinstance(value, np.ndarray):
        if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch; MXNet's arrays have `detach` only
            value = value.detach().cpu()
        read = getattr(value, "asnumpy", None) or getattr(value, "numpy", None)
        try:
            value = read() if callable(read) else None
        except (TypeError, RuntimeError):  # a dtype that NumPy lacks, or an unresolved view of PyTorch
            return None
    given_as_strings = isinstance(value, bytes) or (isinstance(value, np.ndarray) and strings.is_strings(value))
    return strings.decoded(value) if given_as_strings else value


def specs_of(hub: ir.Model) -> dict[str, Any]:
    """A hub model's inputs in the form of `convert`'s `inputs`."""
    return {
        str(v.name): (tuple(d if isinstance(d, int) else d.value for d in v.shape), str(v.dtype.numpy()))
        for v in hub.graph.inputs
        if v.shape is not None and v.dtype is not None
    }
