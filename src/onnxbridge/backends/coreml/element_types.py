"""Element types: maps the hub's dtypes to those that MIL computes with (bool, int32, float16, float32), and converts constants.

All integers become int32. Results of 8 and 16-bit integers wrap around after the operators that can overflow. A 64-bit constant
that does not fit is an error; a 64-bit result that does not fit cannot be detected.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

Array = np.ndarray[Any, Any]

D = ir.DataType
MIL_TYPES = {
    D.BOOL: types.bool,
    D.INT8: types.int32, D.INT16: types.int32, D.INT32: types.int32, D.INT64: types.int32,
    D.UINT8: types.int32, D.UINT16: types.int32, D.UINT32: types.int32, D.UINT64: types.int32,
    D.INT4: types.int32, D.UINT4: types.int32, D.INT2: types.int32, D.UINT2: types.int32,
    D.FLOAT16: types.fp16, D.FLOAT: types.fp32, D.DOUBLE: types.fp32, D.BFLOAT16: types.fp32,
}  # fmt: skip
LOSSY = {
    D.INT64: "int32", D.UINT32: "int32", D.UINT64: "int32", D.DOUBLE: "float32", D.BFLOAT16: "float32",
}  # fmt: skip
"""Dtypes that Core ML does not have, with the dtype that replaces them."""
NARROW = {D.INT8: (8, True), D.UINT8: (8, False), D.INT16: (16, True), D.UINT16: (16, False)}
NARROW |= {D.INT4: (4, True), D.UINT4: (4, False), D.INT2: (2, True), D.UINT2: (2, False)}
INT32 = np.iinfo(np.int32)


HUB_DTYPES: ContextVar[dict[Any, ir.DataType]] = ContextVar("DECLARED")
"""Hub dtypes of the values of the program being written, which MIL's dtypes do not determine."""


def hub_dtype(x: Any) -> ir.DataType:
    """The hub dtype of a MIL value."""
    return HUB_DTYPES.get({}).get(x) or {types.fp32: D.FLOAT, types.fp16: D.FLOAT16, types.bool: D.BOOL}.get(x.dtype, D.INT64)


def mil_type(dtype: ir.DataType | None) -> Any:
    """The MIL dtype for a hub dtype.

    Raises:
        Unsupported: if there is none.
    """
    if dtype not in MIL_TYPES:
        raise Unsupported(f"Core ML has no tensors of {'unknown dtype' if dtype is None else dtype_name(dtype)}")
    return MIL_TYPES[dtype]


def narrow(array: Array, saturate: bool = False) -> Array:
    """Convert a constant to a dtype that MIL has; returns the same array if no conversion is needed.

    `saturate` clamps integers to int32, for bounds that mean "to the end".

    Raises:
        Unsupported: if an element does not fit.
    """
    kind = array.dtype
    if kind in (np.bool_, np.int32, np.float32, np.float16):
        return array
    if kind.name in ("int4", "uint4", "int2", "uint2"):
        return array.astype(np.int32)
    if kind.kind in "iu":
        if kind.itemsize >= 4 and array.size and (array.max() > INT32.max or array.min() < INT32.min):
            if not saturate:
                worst = max(array.max(), -int(array.min()), key=abs)
                raise Unsupported(f"a constant contains {worst}, which is outside of int32, the widest integer dtype of Core ML")
            array = np.clip(array, INT32.min, INT32.max)
        return array.astype(np.int32)
    if kind == np.float64:
        with np.errstate(over="ignore"):
            single: Array = array.astype(np.float32)
        if not np.array_equal(np.isinf(single), np.isinf(array)):
            raise Unsupported("a float64 constant is outside of float32, the widest float dtype of Core ML")
        return single
    if kind.name == "bfloat16":
        return array.astype(np.float32)
    raise Unsupported(f"Core ML has no constants of {kind.name}")


def numpy_type(x: Any) -> Any:
    """The NumPy dtype of a MIL value."""
    return types.nptype_from_builtin(x.dtype)


def like(x: Any, value: Any) -> Any:
    """A number or array as a constant of the dtype of `x`."""
    array = np.asarray(value, numpy_type(x))
    return array if array.ndim else array[()]  # neural network layers do not accept arrays of rank 0


def cast(x: Any, dtype: Any) -> Any:
    """Cast `x` to a MIL dtype; returns `x` if it has that dtype already."""
    return x if x.dtype == dtype else mb.cast(x=x, dtype=types.builtin_to_string(dtype))


def is_float(x: Any) -> bool:
    return x.dtype in (types.fp16, types.fp32)


def wrapped(x: Any, dtype: ir.DataType) -> Any:
    """Wrap an int32 value around to the range of a narrower integer, as ONNX arithmetic does."""
    bits, signed = NARROW[dtype]
    shift = 1 << (bits - 1) if signed else 0
    shifted = mb.add(x=x, y=np.int32(shift)) if shift else x
    wrapped = mb.mod(x=shifted, y=np.int32(1 << bits))
    return mb.sub(x=wrapped, y=np.int32(shift)) if shift else wrapped
