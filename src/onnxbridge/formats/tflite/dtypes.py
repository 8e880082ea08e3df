"""TensorFlow Lite's tensor types as the hub's."""

from __future__ import annotations

import onnx_ir as ir

_NAMES = {"FLOAT32": "FLOAT", "FLOAT64": "DOUBLE", "FLOAT8_E4M3FN": "FLOAT8E4M3FN", "FLOAT8_E5M2": "FLOAT8E5M2"}
NOT_TENSORS = frozenset({"RESOURCE", "VARIANT"})


def hub_dtype(name: str) -> ir.DataType | None:
    """A TensorType by name as the hub's dtype; None for types that ONNX does not have."""
    found: ir.DataType | None = getattr(ir.DataType, _NAMES.get(name, name), None)
    return found
