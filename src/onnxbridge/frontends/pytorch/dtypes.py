"""PyTorch's dtypes as the hub's, and PyTorch's tensors as arrays that share their memory."""

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
# dtypes that NumPy does not have: PyTorch hands out their bits as these integers
_BITS = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": ("uint8", ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": ("uint8", ml_dtypes.float8_e5m2fnuz),
}


def has(dtype: Any) -> bool:
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
    """The torch.dtype that a NumPy dtype's name stands for."""
    return getattr(frameworks.torch(), name)


def array(tensor: Any) -> np.ndarray[Any, Any]:
    """The tensor's own memory as an array, strides and all; only a tensor on another device is copied.

    A complex tensor's parts are in a last axis of 2.
    """
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = frameworks.torch().view_as_real(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    if name in _BITS:
        bits, kind = _BITS[name]
        viewed: np.ndarray[Any, Any] = tensor.view(from_name(bits)).numpy().view(kind)
        return viewed
    plain: np.ndarray[Any, Any] = tensor.numpy()
    return plain


def in_order(tensor: Any) -> bool:
    """Whether a tensor's elements lie in memory one behind the other, from its storage's start."""
    known = all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride(), tensor.storage_offset()))
    return known and bool(tensor.is_contiguous()) and tensor.storage_offset() == 0


def tensor(value: Any, like: Any = None) -> Any:
    """A NumPy array or scalar as a tensor; pairs as complex numbers where the dtype it is to be `like` is; other tensors pass."""
    torch = frameworks.torch()
    pairs = isinstance(like, torch.dtype) and like.is_complex
    if isinstance(value, torch.Tensor):
        return torch.view_as_complex(value) if pairs and not value.is_complex() else value
    if pairs:
        return torch.view_as_complex(torch.from_numpy(np.ascontiguousarray(value)))
    made = np.asarray(value)
    for name, (bits, kind) in _BITS.items():
        if made.dtype == np.dtype(kind):
            return torch.from_numpy(made.view(bits).copy()).view(from_name(name))
    return torch.from_numpy(np.array(made))
