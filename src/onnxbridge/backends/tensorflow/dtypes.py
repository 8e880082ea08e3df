"""The hub's element types in TensorFlow."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import tensorflow as tf

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

# TensorFlow has names for some of these, but no kernels.
_MISSING = frozenset(
    {"FLOAT8E8M0", "FLOAT6E2M3", "FLOAT6E3M2", "FLOAT4E2M1", "FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ", "INT2", "UINT2"}
)


def of(dtype: ir.DataType) -> Any:
    """The dtype of a value.

    Raises:
        Unsupported: if TensorFlow has no such dtype.
    """
    if dtype == ir.DataType.STRING:
        return tf.string
    if dtype.name not in _MISSING:
        try:
            return tf.as_dtype(dtype.numpy())
        except TypeError:
            pass
    raise Unsupported(f"TensorFlow has no {dtype_name(dtype)}")


def attribute(number: int) -> Any:
    """The dtype for the number in an attribute such as Cast's `to`."""
    return of(ir.DataType(number))
