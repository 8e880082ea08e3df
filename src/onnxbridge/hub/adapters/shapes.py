"""What adapters must know of a value: its rank, its sizes, its dtype."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import Unsupported

_HINT = "save the model with its shapes (onnx.shape_inference)"


def rank_of(value: ir.Value) -> int:
    """The number of dimensions."""
    if value.shape is None:
        raise Unsupported(f"the rank of {value.name!r} must be known", _HINT)
    return len(value.shape)


def fixed_shape(value: ir.Value) -> list[int]:
    """The sizes, all of them known."""
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        raise Unsupported(f"the shape of {value.name!r} must be known", _HINT)
    return [int(d) for d in value.shape]  # type: ignore[arg-type]


def dtype_of(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise Unsupported(f"the dtype of {value.name!r} must be known", _HINT)
    return value.dtype
