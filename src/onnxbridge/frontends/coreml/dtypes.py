"""MIL's dtype names."""

from __future__ import annotations

import onnx_ir as ir

from onnxbridge.errors import Unsupported

DTYPES = {
    "bool": ir.DataType.BOOL,
    "fp16": ir.DataType.FLOAT16,
    "fp32": ir.DataType.FLOAT,
    "fp64": ir.DataType.DOUBLE,
    "int8": ir.DataType.INT8,
    "uint8": ir.DataType.UINT8,
    "int16": ir.DataType.INT16,
    "uint16": ir.DataType.UINT16,
    "int32": ir.DataType.INT32,
    "int64": ir.DataType.INT64,
    "uint32": ir.DataType.UINT32,
    "string": ir.DataType.STRING,
}


def onnx_dtype(dtype: str) -> ir.DataType:
    """The ONNX dtype for MIL's dtype name.

    Raises:
        Unsupported: if there is none.
    """
    if dtype not in DTYPES:
        raise Unsupported(f"dtype {dtype}")
    return DTYPES[dtype]
