"""TensorFlow's dtypes and the hub's."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.errors import UsageError

_NAMES = {
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE", "complex64": "COMPLEX64",
    "complex128": "COMPLEX128", "bool": "BOOL", "string": "STRING", "int8": "INT8", "int16": "INT16", "int32": "INT32",
    "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "quint8": "UINT8", "qint8": "INT8", "quint16": "UINT16", "qint16": "INT16", "qint32": "INT32",
    "float8_e5m2": "FLOAT8E5M2", "float8_e4m3fn": "FLOAT8E4M3FN", "int4": "INT4", "uint4": "UINT4",
}  # fmt: skip


def hub_dtype(dtype: Any) -> ir.DataType | None:
    """A tf.DType as the hub's; None for dtypes that are no tensors (resources, variants)."""
    name = _NAMES.get(dtype.base_dtype.name)
    return ir.DataType[name] if name else None


def tf_dtype(dtype: Any) -> Any:
    """A dtype by any name ("float", "float32", np.float32; not torch's) as tf.DType.

    Raises:
        UsageError: if TensorFlow has no such dtype.
    """
    import tensorflow as tf

    if isinstance(dtype, str):
        dtype = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    try:
        return tf.as_dtype(dtype)
    except TypeError:
        raise UsageError(f"TensorFlow has no dtype {dtype!r}") from None
