"""Conversion of PyTorch dtypes to hub dtypes, and of PyTorch tensors to NumPy arrays that share their memory."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.errors import Unsupported

_NAMES = {
    "float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "bool": "BOOL",
    "uint8": "UINT8", "int8": "INT8", "uint16": "UINT16", "int16": "INT16", "uint32": "UINT32", "int32": "INT32",
    "uint64": "UINT64", "int64": "INT64", "complex64": "COMPLEX64", "complex128": "COMPLEX128",
    "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e4m3fnuz": "FLOAT8E4M3FNUZ", "float8_e5m2": "FLOAT8E5M2",
    "float8_e5m2fnuz": "FLOAT8E5M2FNUZ",
}  # fmt: skip
# dtypes that NumPy lacks, and the integer dtypes through which their bits are exchanged
_BITS = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


def is_supported(dtype: Any) -> bool:
    """Whether the hub has a dtype for a torch.dtype."""
    return str(dtype).removeprefix("torch.") in _NAMES


@functools.cache
def to_hub(dtype: Any) -> ir.DataType:
    """The hub's dtype for a torch.dtype."""
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise Unsupported(f"ONNX has no dtype for {dtype}")
    return ir.DataType[_NAMES[name]]


@functools.cache
def from_name(name: str) -> Any:
    """The torch.dtype with the given NumPy dtype name."""
    return getattr(frameworks.torch(), name)


def array(tensor: Any) -> np.ndarray[Any, Any]:
    """A NumPy array over the tensor's memory, with the same strides. Only a tensor on another device is copied.

    A complex tensor becomes a real array with a last axis of size 2 (real and imaginary part).
    """
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = frameworks.torch().view_as_real(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if name in _BITS:
        bits, np_dtype = _BITS[name]
        viewed: np.ndarray[Any, Any] = tensor.view(from_name(bits)).numpy().view(np_dtype)
        return viewed
    plain: np.ndarray[Any, Any] = tensor.numpy()
    return plain


def is_contiguous(tensor: Any) -> bool:
    """Whether the tensor is contiguous and begins at the start of its storage."""
    known = all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))
    return known and bool(tensor.is_contiguous()) and tensor.storage_offset() == 0


def tensor(value: Any, like: Any = None) -> Any:
    """Convert a NumPy array or scalar to a tensor; tensors pass through.

    If `like` is a complex dtype, the last axis holds real and imaginary parts and the result is complex.
    """
    torch = frameworks.torch()
    pairs = isinstance(like, torch.dtype) and like.is_complex
    if isinstance(value, torch.Tensor):
        return torch.view_as_complex(value) if pairs and not value.is_complex() else value
    if pairs:
        return torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(value)))
    array_value = np.asarray(value)
    for name, (bits, np_dtype) in _BITS.items():
        if array_value.dtype == np.dtype(np_dtype):
            return torch.from_numpy(array_value.view(bits).copy()).view(from_name(name))
    return torch.from_numpy(np.array(array_value))
