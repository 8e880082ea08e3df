"""Reads the constants of a saved MIL program: immediate values, and blobs in its weight files."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.coreml.mil_program import Array, Type
from onnxbridge.formats.coreml.package_files import Weights
from onnxbridge.frameworks import coremltools
from onnxbridge.hub.io.resource_limits import claim

# MIL's dtype names, and the NumPy dtype of an element in memory.
DTYPES: dict[str, Any] = {
    "BOOL": np.bool_,
    "STRING": np.str_,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "FLOAT64": np.float64,
    "INT4": np.int8,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT1": np.uint8,
    "UINT2": np.uint8,
    "UINT3": np.uint8,
    "UINT4": np.uint8,
    "UINT6": np.uint8,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
}
CHUNK = 1 << 20  # numbers unpacked at a time; each takes one byte per bit
SUB_BYTE = {"INT4": 4, "UINT1": 1, "UINT2": 2, "UINT3": 3, "UINT4": 4, "UINT6": 6}


def enum_name(enum: Any, number: int) -> str:
    """The name of a value of a protobuf enumeration.

    Raises:
        UnsafeFileError: if it has no such value.
    """
    try:
        return str(enum.Name(number))
    except ValueError:
        raise UnsafeFileError(f"the model has an unknown {enum.DESCRIPTOR.name}, {number}; save it again") from None


def type_name(tensor: Any) -> str:
    """The MIL name of a tensor's element type."""
    name = enum_name(coremltools().proto.MIL_pb2.DataType, tensor.dataType)
    if name not in DTYPES:
        raise UnsafeFileError(f"the program has tensors of dtype {name}, which NumPy does not have")
    return name


def tensor_type(tensor: Any) -> Type:
    """The tensor type of a TensorType message."""
    dtype = np.dtype(DTYPES[type_name(tensor)])
    if any(d.WhichOneof("dimension") == "unknown" and d.unknown.variadic for d in tensor.dimensions):
        return Type(dtype, None)
    return Type(dtype, tuple(d.constant.size if d.WhichOneof("dimension") == "constant" else None for d in tensor.dimensions))


def unpack(packed: Array, bits: int, count: int) -> Array:
    """Unpack `count` unsigned integers of `bits` bits, starting at the lowest bit of the first byte."""
    found: Array = np.empty(count, np.uint8)
    data = packed.view(np.uint8)
    if 8 * data.size < bits * count:
        raise UnsafeFileError(f"{packed.size} bytes are too few for {count} numbers of {bits} bits")
    for start in range(0, count, CHUNK):
        part = found[start : start + CHUNK]
        stream = np.unpackbits(data[bits * start // 8 :], count=bits * part.size, bitorder="little")
        (stream.reshape(part.size, bits) << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8, out=part)
    return found


class ConstantReader:
    """Reads the constants of one program."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def read(self, value: Any) -> Any:
        """The constant in a Value message: an array, a str, a list or a dict."""
        try:
            return self._read(value)
        except (ValueError, IndexError, RuntimeError, TypeError, AttributeError, KeyError) as error:
            # what a message leaves out is None
            raise UnsafeFileError(f"a constant of the program cannot be read: {error}") from error

    def _read(self, value: Any) -> Any:
        if value.type.WhichOneof("type") == "tensorType":
            if value.WhichOneof("value") == "blobFileValue":
                return self._blob(value.blobFileValue, value.type.tensorType)
            return self._immediate(value.immediateValue.tensor, value.type.tensorType)
        content = value.immediateValue
        if content.WhichOneof("value") == "dictionary":
            return {_key(self.read(p.key)): self.read(p.value) for p in content.dictionary.values}
        return [self.read(v) for v in getattr(content, content.WhichOneof("value")).values]

    def _immediate(self, tensor: Any, declared: Any) -> Any:
        name, mil_type = type_name(declared), tensor_type(declared)
        field = tensor.WhichOneof("value")
        if field is None:
            claim(_static_shape(mil_type), mil_type.dtype)
            return np.zeros(_static_shape(mil_type), mil_type.dtype)
        values = getattr(tensor, field).values
        if name == "STRING":
            return str(values[0]) if not mil_type.shape else np.array(list(values), dtype=object).reshape(_static_shape(mil_type))
        if field != "bytes":
            return np.array(values, dtype=mil_type.dtype).reshape(_static_shape(mil_type))
        if name in SUB_BYTE:
            return self._signed(unpack(np.frombuffer(values, np.uint8), SUB_BYTE[name], _element_count(mil_type)), name).reshape(
                _static_shape(mil_type)
            )
        return np.frombuffer(values, mil_type.dtype).reshape(_static_shape(mil_type))

    def _blob(self, blob: Any, declared: Any) -> Array:
        name, mil_type = type_name(declared), tensor_type(declared)
        stored_name, data, count = self._weights.blob(blob.fileName, blob.offset)
        if stored_name != name:
            raise UnsafeFileError(f"a weight has dtype {stored_name} in the weight file, but {name} in the program")
        if name in SUB_BYTE:
            found = self._signed(unpack(np.frombuffer(data, np.uint8), SUB_BYTE[name], count), name)
        else:
            found = np.frombuffer(data, mil_type.dtype, count)
        return found.reshape(_static_shape(mil_type))

    def _signed(self, values: Array, name: str) -> Array:
        if name != "INT4":
            return values
        signed: Array = np.where(values > 7, values.astype(np.int8) - 16, values).astype(np.int8)
        return signed


def _key(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) else value


def _static_shape(mil_type: Type) -> tuple[int, ...]:
    shape = mil_type.fixed()
    if shape is None:
        raise UnsafeFileError("a constant has an unknown dimension")
    return shape


def _element_count(mil_type: Type) -> int:
    return int(np.prod(_static_shape(mil_type), dtype=np.int64))
