"""Running a model on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.ir.values import dtype_name, shape_text
from onnxbridge.json_calls.arrays import Array, decoded, encoded
from onnxbridge.json_calls.models import Model, hub_of
from onnxbridge.runtime import devices


def run(model: Model, inputs: dict[str, Any], device: str = "auto") -> list[dict[str, Any]]:
    """The outputs in order, each an encoded array with its name. Numbers are cast to the dtypes of the inputs.

    Raises:
        UsageError: if an input is missing or unknown, or its values or its shape do not fit.
    """
    hub = hub_of(model)
    expected = {str(v.name): v for v in hub.graph.inputs}
    unknown = [name for name in inputs if name not in expected]
    missing = [name for name in expected if name not in inputs]
    if unknown or missing:
        what = f"has no input {unknown[0]!r}" if unknown else f"needs the input {missing[0]!r}"
        raise UsageError(f"the model {what}; its inputs are {', '.join(expected) or 'none'}")
    feeds = {name: _fitting(decoded(sent, name), expected[name]) for name, sent in inputs.items()}
    found = devices.runner(hub, device)(feeds)
    return [{"name": name, **encoded(np.asarray(value))} for name, value in found.items()]


def _fitting(array: Array, value: ir.Value) -> Array:
    """The array in the input's dtype, where that keeps its values, and with its number of dimensions."""
    name, dtype, shape = value.name, value.dtype, value.shape
    if shape is not None:
        if array.ndim == 1 and len(shape) == 2 and shape[1] == 1:  # a vector is a column
            array = array.reshape(-1, 1)
        sizes = zip(array.shape, shape, strict=False)
        if array.ndim != len(shape) or any(isinstance(d, int) and n != d for n, d in sizes):
            raise UsageError(f"the input {name!r} has the shape {list(array.shape)}, and the model expects {shape_text(shape)}")
    if dtype is None:
        return array
    if (dtype == ir.DataType.STRING) != (array.dtype == object):
        given = "text" if array.dtype == object else "numbers"
        raise UsageError(f"the input {name!r} is {given}, and the model expects {dtype_name(dtype)}")
    if dtype == ir.DataType.STRING:
        return array
    wanted = dtype.numpy()
    if wanted.kind in "iub" and array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.rint(array)).all()):
        raise UsageError(f"the input {name!r} has fractions, and the model expects {dtype_name(dtype)}")
    if wanted.kind in "iu":
        limits = np.iinfo(wanted)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise UsageError(f"the input {name!r} has numbers that {dtype_name(dtype)} does not hold")
    return np.ascontiguousarray(array.astype(wanted))
