"""Element types: the hub's in those that MIL computes with (bool, int32, float16, float32), and constants that must fit.

All integers are held as int32. What leaves the range of an 8 or 16-bit integer is wrapped after the operators that can leave
it; 64-bit constants that do not fit are an error; 64-bit results that would not fit cannot be told.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import numpy as np
import onnx_ir as ir
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types

from onnxbridge.errors import Unsupported

Array = np.ndarray[Any, Any]

D = ir.DataType
HELD = {
    D.BOOL: types.bool,
    D.INT8: types.int32, D.INT16: types.int32, D.INT32: types.int32, D.INT64: types.int32,
    D.UINT8: types.int32, D.UINT16: types.int32, D.UINT32: types.int32, D.UINT64: types.int32,
    D.INT4: types.int32, D.UINT4: types.int32, D.INT2: types.int32, D.UINT2: types.int32,
    D.FLOAT16: types.fp16, D.FLOAT: types.fp32, D.DOUBLE: types.fp32, D.BFLOAT16: types.fp32,
}  # fmt: skip
LOSSY = {
    D.INT64: "int32", D.UINT32: "int32", D.UINT64: "int32", D.DOUBLE: "float32", D.BFLOAT16: "float32",
}  # fmt: skip
"""Types that Core ML has not, with what stands in for them."""
NARROW = {D.INT8: (8, True), D.UINT8: (8, False), D.INT16: (16, True), D.UINT16: (16, False)}
NARROW |= {D.INT4: (4, True), D.UINT4: (4, False), D.INT2: (2, True), D.UINT2: (2, False)}
INT32 = np.iinfo(np.int32)


DECLARED: ContextVar[dict[Any, ir.DataType]] = ContextVar("DECLARED")
"""The hub's types of the values of the program that is being written, where MIL's say less."""


def declared(x: Any) -> ir.DataType:
    """The type that a value has in the hub."""
    return DECLARED.get({}).get(x) or {types.fp32: D.FLOAT, types.fp16: D.FLOAT16, types.bool: D.BOOL}.get(x.dtype, D.INT64)


def held(dtype: ir.DataType | None) -> Any:
    """The MIL type that holds a hub type.

    Raises:
        Unsupported: if there is none.
    """
    if dtype not in HELD:
        raise Unsupported(f"Core ML has no tensors of {'an unknown type' if dtype is None else dtype.name.lower()}")
    return HELD[dtype]


def narrow(array: Array, saturate: bool = False) -> Array:
    """A constant in the type that holds it, itself where it has that type already.

    `saturate`: integers that do not fit become the nearest that does, for bounds which mean "to the end".

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
                raise Unsupported(f"a constant holds {worst}, which is outside of int32, the widest integer of Core ML")
            array = np.clip(array, INT32.min, INT32.max)
        return array.astype(np.int32)
    if kind == np.float64:
        with np.errstate(over="ignore"):
            single: Array = array.astype(np.float32)
        if not np.array_equal(np.isinf(single), np.isinf(array)):
            raise Unsupported("a float64 constant is outside of float32, the widest float of Core ML")
        return single
    if kind.name == "bfloat16":
        return array.astype(np.float32)
    raise Unsupported(f"Core ML has no constants of {kind.name}")


def numpy_type(x: Any) -> Any:
    """The NumPy type of a MIL value's elements."""
    return types.nptype_from_builtin(x.dtype)


def like(x: Any, value: Any) -> Any:
    """A number or array as a constant of the type that `x` has."""
    array = np.asarray(value, numpy_type(x))
    return array if array.ndim else array[()]  # layers of a neural network take no arrays of rank 0


def cast(x: Any, dtype: Any) -> Any:
    """`x` in a MIL type, itself where it has that type already."""
    return x if x.dtype == dtype else mb.cast(x=x, dtype=types.builtin_to_string(dtype))


def is_float(x: Any) -> bool:
    return x.dtype in (types.fp16, types.fp32)


def wrapped(x: Any, dtype: ir.DataType) -> Any:
    """An int32 value brought back into the range of a narrow integer, as the hub's arithmetic wraps around."""
    bits, signed = NARROW[dtype]
    shift = 1 << (bits - 1) if signed else 0
    shifted = mb.add(x=x, y=np.int32(shift)) if shift else x
    wrapped = mb.mod(x=shifted, y=np.int32(1 << bits))
    return mb.sub(x=wrapped, y=np.int32(shift)) if shift else wrapped
