"""Weights of two models: digests of their bytes, and how far two of them are apart."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.analysis.graph_diff.difference import Distance
from onnxbridge.hub.io.mapped_tensors import tensor_bytes
from onnxbridge.hub.ir.schemas import array_of
from onnxbridge.hub.ir.values import dtype_name

_BYTES = 1 << 24  # hashed at once
_ELEMENTS = 1 << 20  # compared at once, in float64


def digest(tensor: ir.TensorProtocol) -> bytes:
    """A digest of dtype, shape and elements. The bytes are read once, in pieces, and not copied if they are memory-mapped."""
    made = hashlib.blake2b(digest_size=16)
    made.update(f"{tensor.dtype.name} {list(tensor.shape.numpy())} ".encode())
    if tensor.dtype == ir.DataType.STRING:
        for text in array_of(tensor).reshape(-1).tolist():
            made.update(f"{len(text)} {text}".encode("utf-8", "surrogateescape"))
        return made.digest()
    data = memoryview(tensor_bytes(tensor))
    for start in range(0, len(data), _BYTES):
        made.update(data[start : start + _BYTES])
    return made.digest()


def distance(first: ir.TensorProtocol, second: ir.TensorProtocol) -> Distance | None:
    """The distance of two tensors, also of different dtypes; None if their shapes differ or they are no numbers."""
    if list(first.shape.numpy()) != list(second.shape.numpy()) or ir.DataType.STRING in (first.dtype, second.dtype):
        return None
    max_abs, largest, different = 0.0, 0.0, 0
    for a, b in zip(_pieces(first), _pieces(second), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        gap[np.isnan(gap)] = math.inf  # a number in place of NaN
        different += int(np.count_nonzero(gap))
        max_abs = max(max_abs, float(gap.max(initial=0.0)))
        finite = np.abs(a[np.isfinite(a)])
        largest = max(largest, float(finite.max(initial=0.0)))
    relative = max_abs / largest if largest else (math.inf if max_abs else 0.0)
    return Distance(max_abs, relative, different, first.size)


def _pieces(tensor: ir.TensorProtocol) -> Iterator[np.ndarray[Any, Any]]:
    flat = np.asarray(tensor.numpy()).reshape(-1)
    is_complex = flat.dtype.kind == "c"
    for start in range(0, flat.size, _ELEMENTS):
        yield flat[start : start + _ELEMENTS].astype(np.complex128 if is_complex else np.float64)


def is_transposed(first: ir.TensorProtocol, second: ir.TensorProtocol) -> bool:
    """Whether two matrices are each other's transpose."""
    shape = list(first.shape.numpy())
    if len(shape) != 2 or shape[::-1] != list(second.shape.numpy()) or first.dtype != second.dtype:
        return False
    return np.array_equal(np.asarray(first.numpy()), np.asarray(second.numpy()).T)


def tensor_text(tensor: ir.TensorProtocol) -> str:
    """ "float32[64, 3, 7, 7]"."""
    return f"{dtype_name(tensor.dtype)}{list(tensor.shape.numpy())}"
