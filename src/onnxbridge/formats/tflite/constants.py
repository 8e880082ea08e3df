"""The constants of a TensorFlow Lite model as tensors over the mapped file."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.formats.tflite.dtypes import NOT_TENSORS, hub_dtype
from onnxbridge.formats.tflite.model import Array, Sparsity, Tensor
from onnxbridge.hub.io.mapped_tensors import MAX_DENSE_BYTES, MappedTensor
from onnxbridge.hub.io.safe_files import quoted


def constant(path: str, tensor: Tensor) -> ir.TensorProtocol | None:
    """A constant, which refers to the file where its layout is ONNX's; zeros for a variable, None for other tensors.

    Raises:
        UnsafeFileError: for strings or sparse data that do not match the shape.
        LimitError: for a variable or a sparse tensor of more than `MAX_DENSE_BYTES`.
    """
    dtype = hub_dtype(tensor.type)
    shape = [s or 0 for s in tensor.sizes or ()]
    if dtype is None or tensor.type in NOT_TENSORS:
        return None
    if tensor.data is None:
        if tensor.is_variable or tensor.sizes is not None and 0 in shape and None not in tensor.sizes:
            _check_size(path, tensor, shape, np.dtype(dtype.numpy()).itemsize)
            return ir.Tensor(np.zeros(shape, dtype.numpy()), dtype)
        return None
    if dtype == ir.DataType.STRING:
        return ir.StringTensor(_strings(path, tensor, shape), shape=ir.Shape(shape))
    if tensor.sparsity is not None:
        return ir.Tensor(_dense(path, tensor, tensor.sparsity, np.dtype(dtype.numpy()), shape), dtype)
    if dtype.bitwidth < 8:
        return ir.PackedTensor(tensor.data, dtype, shape=ir.Shape(shape))
    array = tensor.data.view(np.dtype(dtype.numpy()).newbyteorder("<")).reshape(shape)
    return MappedTensor(array, dtype, path, tensor.offset, shape=ir.Shape(shape))


def _check_size(path: str, tensor: Tensor, shape: list[int], itemsize: int) -> None:
    """Check the size of a tensor whose elements are not all in the file."""
    if math.prod(shape) * itemsize > MAX_DENSE_BYTES:
        kind = "variable" if tensor.is_variable else "sparse tensor"
        raise LimitError(f"{path}: the {kind} {quoted(tensor.name)} of shape {shape} is larger than {MAX_DENSE_BYTES} bytes.")


def _strings(path: str, tensor: Tensor, shape: list[int]) -> Array:
    """Strings: their count, the offsets of each and of the end, and the bytes."""
    data = tensor.data
    assert data is not None
    raw = data.tobytes()
    count = int.from_bytes(raw[:4], "little")
    ends = np.frombuffer(raw, "<i4", count + 1, 4) if 0 <= count <= len(raw) // 4 - 2 else None
    if ends is None or count != math.prod(shape) or (np.diff(ends) < 0).any() or ends[0] < 0 or ends[-1] > len(raw):
        raise UnsafeFileError(f"{path}: the tensor {quoted(tensor.name)} holds damaged strings; get the file again.")
    found = np.empty(count, object)
    for i in range(count):
        found[i] = raw[ends[i] : ends[i + 1]]
    return found.reshape(shape)


def _dense(path: str, tensor: Tensor, sparsity: Sparsity, dtype: np.dtype[np.generic], shape: list[int]) -> Array:
    """A sparse tensor with its zeros. Dimensions that are split into blocks have an index of the block and one within it."""
    _check_size(path, tensor, shape, dtype.itemsize)
    assert tensor.data is not None
    wrong = UnsafeFileError(f"{path}: the sparse tensor {quoted(tensor.name)} is damaged; get the file again.")
    if len(tensor.data) % dtype.itemsize:
        raise wrong
    values = tensor.data.view(dtype)
    rank = len(shape)
    block_sizes = {}
    for position, dimension in zip(sparsity.order, sparsity.dimensions, strict=True):
        if position >= rank:
            if not isinstance(dimension, int) or dimension <= 0:
                raise wrong
            block_sizes[position] = dimension
    # the index of each stored element along each dimension, from the outer to the inner one
    parents = np.zeros(1, np.int64)
    indices: dict[int, Array] = {}
    for position, dimension in zip(sparsity.order, sparsity.dimensions, strict=True):
        if isinstance(dimension, int):
            if dimension <= 0 or len(parents) * dimension > len(values):
                raise wrong
            counts, own = np.full(len(parents), dimension), np.tile(np.arange(dimension), len(parents))
            parents = np.arange(len(parents) * dimension)
        else:
            segments, found = dimension
            if len(segments) != len(parents) + 1 or segments[0] != 0 or segments[-1] != len(found):
                raise wrong
            counts, own = np.diff(segments), found
            if (counts < 0).any() or len(found) > len(values):
                raise wrong
            parents = np.arange(len(found))
        indices = {k: np.repeat(v, counts) for k, v in indices.items()}
        indices[position] = own
    if len(parents) != len(values):
        raise wrong
    dense = np.zeros(shape, dtype)
    where = []
    for axis in range(rank):
        at = indices[axis]
        for b, blocked in enumerate(sparsity.blocks):
            if blocked == axis:
                at = at * block_sizes[rank + b] + indices[rank + b]
        if ((at < 0) | (at >= shape[axis])).any():
            raise wrong
        where.append(at)
    dense[tuple(where)] = values
    return dense


