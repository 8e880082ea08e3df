"""The hub's element types in PyTorch.

PyTorch supports few operators on uint16, uint32 and uint64. Inside a module these are carried as int64 and converted back at its
outputs. Four-bit and two-bit types are carried as bytes inside and outside: integers as int8 or uint8, floats as float8_e4m3fn,
which represents all of their values.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir.values import dtype_name

D = ir.DataType
OUTSIDE = {
    D.FLOAT: torch.float32, D.DOUBLE: torch.float64, D.FLOAT16: torch.float16, D.BFLOAT16: torch.bfloat16,
    D.INT8: torch.int8, D.INT16: torch.int16, D.INT32: torch.int32, D.INT64: torch.int64,
    D.UINT8: torch.uint8, D.UINT16: torch.uint16, D.UINT32: torch.uint32, D.UINT64: torch.uint64,
    D.BOOL: torch.bool, D.COMPLEX64: torch.complex64, D.COMPLEX128: torch.complex128,
    D.INT4: torch.int8, D.UINT4: torch.uint8, D.INT2: torch.int8, D.UINT2: torch.uint8,
    D.FLOAT8E4M3FN: torch.float8_e4m3fn, D.FLOAT8E5M2: torch.float8_e5m2,
    D.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz, D.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz, D.FLOAT8E8M0: torch.float8_e8m0fnu,
    D.FLOAT4E2M1: torch.float8_e4m3fn,
}  # fmt: skip
WIDE = {D.UINT16: 0xFFFF, D.UINT32: 0xFFFFFFFF, D.UINT64: -1}
"""The unsigned types that are carried as int64, each with the mask of its bits."""
NARROW = frozenset({D.INT4, D.UINT4, D.INT2, D.UINT2, D.FLOAT4E2M1})
_BYTES = {
    D.INT4: np.int8, D.INT2: np.int8, D.UINT4: np.uint8, D.UINT2: np.uint8, D.FLOAT4E2M1: ml_dtypes.float8_e4m3fn,
}  # fmt: skip


def outside(dtype: ir.DataType) -> Any:
    """The dtype of a module's inputs and outputs for a hub element type.

    Raises:
        Unsupported: if PyTorch has no such dtype.
    """
    if dtype not in OUTSIDE:
        raise Unsupported(f"PyTorch has no {dtype_name(dtype)}")
    return OUTSIDE[dtype]


def inside(dtype: ir.DataType) -> Any:
    """The dtype in which rules compute a value."""
    return torch.int64 if dtype in WIDE else outside(dtype)


def attribute(number: int) -> Any:
    """The dtype, as rules compute it, for the number in an attribute such as Cast's `to`."""
    return inside(ir.DataType(number))


def tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """An array as a tensor, sharing memory if the array is writable and PyTorch has its dtype."""
    array = np.asarray(array)
    dtype = ir.DataType.from_numpy(array.dtype)
    if not array.flags.writeable or any(s < 0 for s in array.strides) or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), copy=True)
    if dtype in NARROW:
        array = array.astype(_BYTES[dtype])
    kind = outside(dtype)
    if not array.size:
        return torch.empty(
            array.shape, dtype=kind
        )  # torch.export cannot save empty tensors with strides of 0, which NumPy may have
    if array.dtype.kind == "V" or array.dtype.name.startswith(("float8", "bfloat16")):
        raw = array.view(np.dtype(f"i{array.dtype.itemsize}"))
        return torch.from_numpy(raw).view(kind)
    return torch.from_numpy(array)


def array(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor as an array; bfloat16 and float8 become ml_dtypes' types."""
    value = value.detach().cpu().contiguous()
    name = str(value.dtype).removeprefix("torch.")
    if hasattr(ml_dtypes, name):
        raw = value.view(torch.int16 if value.element_size() == 2 else torch.int8).numpy()
        return np.asarray(raw.view(getattr(ml_dtypes, name)))
    return np.asarray(value.numpy())
