"""Memory-mapped tensors of a model file; declared sizes are checked against the data before any byte is used."""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.protobuf_weights import LARGE
from onnxbridge.hub.io.safe_files import map_file, open_inside, quoted

Bytes = mmap.mmap | bytes
MAX_RANK = 32  # NumPy's limit before 2.0; nothing computes with more
MAX_DENSE_BYTES = 256 << 20
_NUMBER = re.compile(r"[0-9]{1,19}")
_TYPED = {
    ir.DataType.FLOAT: ("float_data", 1),
    ir.DataType.COMPLEX64: ("float_data", 2),
    ir.DataType.DOUBLE: ("double_data", 1),
    ir.DataType.COMPLEX128: ("double_data", 2),
    ir.DataType.INT64: ("int64_data", 1),
    ir.DataType.UINT64: ("uint64_data", 1),
    ir.DataType.UINT32: ("uint64_data", 1),
    ir.DataType.STRING: ("string_data", 1),
}
_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def all_tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph and its subgraphs."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from all_tensors(inner)


def declared_sizes(label: str, tensor: onnx.TensorProto | onnx.SparseTensorProto, name: str) -> tuple[ir.DataType, int, int]:
    """The declared dtype, number of elements and number of bytes of a tensor."""
    dims = list(tensor.dims)
    if len(dims) > MAX_RANK:
        raise _wrong(label, name, f"has rank {len(dims)}; the limit is {MAX_RANK}")
    if any(d < 0 for d in dims):
        raise _wrong(label, name, f"has a negative dimension in {dims}")
    values = tensor.values if isinstance(tensor, onnx.SparseTensorProto) else tensor
    try:
        dtype = ir.DataType(values.data_type)
    except ValueError:
        raise _wrong(label, name, f"has the unknown data type {values.data_type}") from None
    if dtype == ir.DataType.UNDEFINED:
        raise _wrong(label, name, "has no data type")
    count = 1
    for d in dims:
        count *= d
    bits = 8 if dtype == ir.DataType.STRING else dtype.bitwidth
    nbytes = (count * bits + 7) // 8
    if nbytes >= 1 << 62:
        raise _wrong(label, name, f"declares {dims}, more bytes than any file can have")
    return dtype, count, nbytes


def _wrong(label: str, name: str, what: str) -> UnsafeFileError:
    return UnsafeFileError(f"{label}: the tensor {quoted(name)} {what}; export the model again.")


class MappedTensor(ir.Tensor[Any]):
    """A tensor over a mapped file, for runtimes that map files themselves: its bytes start at `offset` in `file`."""

    def __init__(self, array: np.ndarray[Any, Any], dtype: ir.DataType, file: str, offset: int, **more: Any) -> None:
        super().__init__(array, dtype, **more)
        self.file, self.offset = file, offset


@dataclass
class WeightStore:
    """The data of one model's tensors: regions (source, offset, size) referred to by placeholders, or external files."""

    label: str
    folder: str | None = None
    placeholder: bytes = b""
    regions: list[tuple[Bytes, int, int]] = field(default_factory=list)
    files: dict[str, Bytes] = field(default_factory=dict)

    def add(self, raw: bytes) -> bytes:
        """Add bytes in memory; returns their placeholder."""
        self.regions.append((raw, 0, len(raw)))
        return self.placeholder + (len(self.regions) - 1).to_bytes(4, "little")

    def check(self, tensor: onnx.TensorProto) -> None:
        """Check that a tensor's data is complete and stored in an allowed location.

        Raises:
            UnsafeFileError: otherwise.
        """
        dtype, count, nbytes = declared_sizes(self.label, tensor, tensor.name)
        if tensor.HasField("segment"):
            raise _wrong(self.label, tensor.name, "is split into segments, which is not supported")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if dtype == ir.DataType.STRING:
                raise _wrong(self.label, tensor.name, "stores strings in an external file")
            self._external(tensor, nbytes)
            return
        if tensor.HasField("raw_data") and not tensor.raw_data and any(len(getattr(tensor, f)) for f in _DATA_FIELDS):
            tensor.ClearField("raw_data")
        if tensor.HasField("raw_data"):
            index = self._index(tensor)
            actual = self.regions[index][2] if index >= 0 else len(tensor.raw_data)
            if actual != nbytes or dtype == ir.DataType.STRING:
                declared = f"declares {list(tensor.dims)} of {dtype.name}, {nbytes} bytes"
                raise _wrong(self.label, tensor.name, f"{declared}, but has {actual}")
            return
        data_field, per_element = _TYPED.get(dtype, ("int32_data", 1))
        packed = dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4)
        expected = nbytes if packed else count * per_element
        actual = len(getattr(tensor, data_field))
        if actual != expected or any(len(getattr(tensor, f)) for f in _DATA_FIELDS if f != data_field):
            declared = f"declares {list(tensor.dims)} of {dtype.name}, {expected} numbers"
            raise _wrong(self.label, tensor.name, f"{declared}, but has {actual} in {data_field}")

    def _index(self, tensor: onnx.TensorProto) -> int:
        """The index in the tensor's placeholder, -1 if it has none."""
        raw = tensor.raw_data if self.placeholder and tensor.HasField("raw_data") else b""
        found = len(raw) == len(self.placeholder) + 4 and raw.startswith(self.placeholder)
        return int.from_bytes(raw[-4:], "little") if found else -1

    def _external(self, tensor: onnx.TensorProto, nbytes: int) -> tuple[Bytes, int]:
        """The mapped external file of a tensor and the offset of its data."""
        entries = {e.key: e.value for e in tensor.external_data}
        label = f"{self.label}: the tensor {quoted(tensor.name)} stores its data in"
        if len(entries) != len(tensor.external_data):
            raise _wrong(self.label, tensor.name, "has duplicate external data entries")
        location = entries.get("location", "")
        if self.folder is None:
            raise UnsafeFileError(f"{label} {quoted(location)}, but the model came without a folder; give the path of its file.")
        numbers = {key: entries[key] for key in ("offset", "length") if key in entries}
        for key, text in numbers.items():
            if not _NUMBER.fullmatch(text):
                raise _wrong(self.label, tensor.name, f"has the {key} {quoted(text)} in {quoted(location)}, which is not a size")
        offset = int(numbers.get("offset", 0))
        if "length" in numbers and int(numbers["length"]) != nbytes:
            declared = f"declares {list(tensor.dims)}, {nbytes} bytes"
            raise _wrong(self.label, tensor.name, f"{declared}, but {numbers['length']} in {quoted(location)}")
        if location not in self.files:
            self.files[location] = map_file(open_inside(self.folder, location, label))
        size = len(self.files[location])
        if offset + nbytes > size:
            raise UnsafeFileError(
                f"{label} {quoted(location)} up to byte {offset + nbytes}, but that file has {size}; get the whole file again."
            )
        return self.files[location], offset

    def tensor(self, proto: onnx.TensorProto) -> ir.TensorProtocol | None:
        """The tensor over the mapped data, None if the parsed message contains the data itself."""
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            dtype, count, nbytes = declared_sizes(self.label, proto, proto.name)
            source, offset = self._external(proto, nbytes)
        elif (index := self._index(proto)) >= 0:
            dtype, count, nbytes = declared_sizes(self.label, proto, proto.name)
            source, offset, _ = self.regions[index]
        else:
            return None
        shape = ir.Shape(proto.dims)
        notes = {e.key: e.value for e in proto.metadata_props} or None
        more: dict[str, Any] = {"name": proto.name, "doc_string": proto.doc_string or None, "metadata_props": notes}
        if dtype.bitwidth < 8:
            packed = np.frombuffer(source, np.uint8, nbytes, offset) if nbytes else np.zeros(0, np.uint8)
            return ir.PackedTensor(packed, dtype, shape=shape, **more)
        kind = np.dtype(dtype.numpy()).newbyteorder("<")
        array = np.frombuffer(source, kind, count, offset) if count else np.zeros(0, kind)
        file = self._file_of(source)
        if not file or kind.byteorder == ">":
            return ir.Tensor(array.reshape(list(proto.dims)), dtype, shape=shape, **more)
        return MappedTensor(array.reshape(list(proto.dims)), dtype, file, offset, shape=shape, **more)

    def _file_of(self, source: Bytes) -> str:
        """The path of a mapped file, "" for bytes in memory."""
        if not isinstance(source, mmap.mmap):
            return ""
        location = next((name for name, mapped in self.files.items() if mapped is source), None)
        return self.label if location is None else os.path.join(self.folder or "", location)


def to_dense(label: str, sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """A sparse tensor as a dense one, since the hub has no sparse tensors; indices are linear or one row per value."""
    name = sparse.values.name
    dtype, count, nbytes = declared_sizes(label, sparse, name)
    if nbytes > MAX_DENSE_BYTES:
        raise LimitError(
            f"{label}: the sparse tensor {quoted(name)} would have {nbytes} bytes when dense; the limit is {MAX_DENSE_BYTES}."
        )
    WeightStore(label).check(sparse.values)
    WeightStore(label).check(sparse.indices)
    values = ir.serde.TensorProtoTensor(sparse.values).numpy()
    where = ir.serde.TensorProtoTensor(sparse.indices).numpy().astype(np.int64)
    dims = list(sparse.dims)
    if where.ndim == 2 and where.shape == (values.size, len(dims)):
        if (where < 0).any() or (where >= np.array(dims)).any():
            raise _wrong(label, name, "has an index outside its shape")
        where = np.ravel_multi_index(tuple(where.T), dims) if dims else np.zeros(values.size, np.int64)
    if values.ndim != 1 or where.shape != values.shape or ((where < 0) | (where >= count)).any():
        raise _wrong(label, name, "has an index outside its shape")
    full = np.zeros(count, values.dtype)
    full[where] = values
    return onnx.TensorProto(name=name, data_type=dtype.value, dims=dims, raw_data=full.tobytes())


def tensor_bytes(tensor: ir.TensorProtocol) -> memoryview | bytes:
    """A tensor's bytes as ONNX stores them, without a copy if its array has that layout."""
    if tensor.dtype.bitwidth >= 8:
        array = np.asarray(tensor.numpy())
        plain = array.flags.c_contiguous and array.dtype.byteorder in "<=|" and array.dtype.itemsize * 8 == tensor.dtype.bitwidth
        if plain and sys.byteorder == "little" and array.size:
            return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return tensor.tobytes()


class PlaceholderTensor(ir.Tensor[Any]):
    """Replaces a large tensor while its model is serialized; its data is a placeholder."""

    def __init__(self, tensor: ir.TensorProtocol, placeholder: bytes) -> None:
        super().__init__(
            _NoArray(), tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name, doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )  # fmt: skip
        self._placeholder = placeholder

    def tobytes(self) -> bytes:
        return self._placeholder


class _NoArray:
    """The array of a `PlaceholderTensor`, which cannot be read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError("a placeholder for a large tensor has no data")


def is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= LARGE
