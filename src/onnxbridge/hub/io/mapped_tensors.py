"""Tensors of a model file: what they declare is checked against what is there before a byte of them is used."""

from __future__ import annotations

import mmap
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
from onnxbridge.hub.io.safe_files import mapped, open_inside, quoted

Bytes = mmap.mmap | bytes
MOST_RANK = 32  # NumPy's limit before 2.0; nothing computes with more
MOST_DENSE = 256 << 20
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


def tensors(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph and of the graphs inside it."""
    if isinstance(graph, onnx.GraphProto):
        yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from tensors(inner)


def sizes(shown: str, tensor: onnx.TensorProto | onnx.SparseTensorProto, name: str) -> tuple[ir.DataType, int, int]:
    """The dtype, the number of elements and the number of bytes that a tensor declares."""
    dims = list(tensor.dims)
    if len(dims) > MOST_RANK:
        raise _wrong(shown, name, f"has rank {len(dims)}, of at most {MOST_RANK}")
    if any(d < 0 for d in dims):
        raise _wrong(shown, name, f"has a negative dimension in {dims}")
    values = tensor.values if isinstance(tensor, onnx.SparseTensorProto) else tensor
    try:
        dtype = ir.DataType(values.data_type)
    except ValueError:
        raise _wrong(shown, name, f"has the unknown data type {values.data_type}") from None
    if dtype == ir.DataType.UNDEFINED:
        raise _wrong(shown, name, "has no data type")
    count = 1
    for d in dims:
        count *= d
    bits = 8 if dtype == ir.DataType.STRING else dtype.bitwidth
    nbytes = (count * bits + 7) // 8
    if nbytes >= 1 << 62:
        raise _wrong(shown, name, f"declares {dims}, more bytes than any file holds")
    return dtype, count, nbytes


def _wrong(shown: str, name: str, what: str) -> UnsafeFileError:
    return UnsafeFileError(f"{shown}: the tensor {quoted(name)} {what}; export the model again.")


@dataclass
class Store:
    """Where the bytes of one model's tensors lie: behind tickets (source, offset, size), or in files beside the model."""

    shown: str
    folder: str | None = None
    ticket: bytes = b""
    places: list[tuple[Bytes, int, int]] = field(default_factory=list)
    opened: dict[str, Bytes] = field(default_factory=dict)

    def keep(self, raw: bytes) -> bytes:
        """A ticket for bytes in memory."""
        self.places.append((raw, 0, len(raw)))
        return self.ticket + (len(self.places) - 1).to_bytes(4, "little")

    def check(self, tensor: onnx.TensorProto) -> None:
        """Refuse a tensor whose bytes are not all there, or not where a model's bytes may be."""
        dtype, count, nbytes = sizes(self.shown, tensor, tensor.name)
        if tensor.HasField("segment"):
            raise _wrong(self.shown, tensor.name, "is split into segments, which nothing reads")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            if dtype == ir.DataType.STRING:
                raise _wrong(self.shown, tensor.name, "keeps strings in another file")
            self._external(tensor, nbytes)
            return
        if tensor.HasField("raw_data") and not tensor.raw_data and any(len(getattr(tensor, f)) for f in _DATA_FIELDS):
            tensor.ClearField("raw_data")
        if tensor.HasField("raw_data"):
            place = self._place(tensor)
            there = self.places[place][2] if place >= 0 else len(tensor.raw_data)
            if there != nbytes or dtype == ir.DataType.STRING:
                declared = f"declares {list(tensor.dims)} of {dtype.name}, {nbytes} bytes"
                raise _wrong(self.shown, tensor.name, f"{declared}, but has {there}")
            return
        home, each = _TYPED.get(dtype, ("int32_data", 1))
        packed = dtype != ir.DataType.STRING and dtype.bitwidth in (2, 4)
        wanted = nbytes if packed else count * each
        there = len(getattr(tensor, home))
        if there != wanted or any(len(getattr(tensor, f)) for f in _DATA_FIELDS if f != home):
            declared = f"declares {list(tensor.dims)} of {dtype.name}, {wanted} numbers"
            raise _wrong(self.shown, tensor.name, f"{declared}, but has {there} in {home}")

    def _place(self, tensor: onnx.TensorProto) -> int:
        """The number on the ticket that stands for the tensor's bytes, -1 for none."""
        raw = tensor.raw_data if self.ticket and tensor.HasField("raw_data") else b""
        held = len(raw) == len(self.ticket) + 4 and raw.startswith(self.ticket)
        return int.from_bytes(raw[-4:], "little") if held else -1

    def _external(self, tensor: onnx.TensorProto, nbytes: int) -> tuple[Bytes, int]:
        """The mapped file of a tensor's bytes and where they begin in it."""
        entries = {e.key: e.value for e in tensor.external_data}
        shown = f"{self.shown}: the tensor {quoted(tensor.name)} keeps its data in"
        if len(entries) != len(tensor.external_data):
            raise _wrong(self.shown, tensor.name, "says twice where its data is")
        location = entries.get("location", "")
        if self.folder is None:
            raise UnsafeFileError(f"{shown} {quoted(location)}, but the model came without a folder; give the path of its file.")
        numbers = {key: entries[key] for key in ("offset", "length") if key in entries}
        for key, text in numbers.items():
            if not _NUMBER.fullmatch(text):
                raise _wrong(self.shown, tensor.name, f"has the {key} {quoted(text)} in {quoted(location)}, which is no size")
        offset = int(numbers.get("offset", 0))
        if "length" in numbers and int(numbers["length"]) != nbytes:
            declared = f"declares {list(tensor.dims)}, {nbytes} bytes"
            raise _wrong(self.shown, tensor.name, f"{declared}, but {numbers['length']} in {quoted(location)}")
        if location not in self.opened:
            self.opened[location] = mapped(open_inside(self.folder, location, shown))
        size = len(self.opened[location])
        if offset + nbytes > size:
            raise UnsafeFileError(
                f"{shown} {quoted(location)} up to byte {offset + nbytes}, but that file has {size}; get the whole file again."
            )
        return self.opened[location], offset

    def tensor(self, proto: onnx.TensorProto) -> ir.TensorProtocol | None:
        """The tensor over the mapped bytes, None where the parsed message holds them itself."""
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            dtype, count, nbytes = sizes(self.shown, proto, proto.name)
            source, offset = self._external(proto, nbytes)
        elif (place := self._place(proto)) >= 0:
            dtype, count, nbytes = sizes(self.shown, proto, proto.name)
            source, offset, _ = self.places[place]
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
        return ir.Tensor(array.reshape(list(proto.dims)), dtype, shape=shape, **more)


def dense(shown: str, sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """A sparse tensor written out, since the hub has no sparse ones; the coordinates may be linear or one row a value."""
    name = sparse.values.name
    dtype, count, nbytes = sizes(shown, sparse, name)
    if nbytes > MOST_DENSE:
        raise LimitError(f"{shown}: the sparse tensor {quoted(name)} would take {nbytes} bytes written out, of {MOST_DENSE}.")
    Store(shown).check(sparse.values)
    Store(shown).check(sparse.indices)
    values = ir.serde.TensorProtoTensor(sparse.values).numpy()
    where = ir.serde.TensorProtoTensor(sparse.indices).numpy().astype(np.int64)
    dims = list(sparse.dims)
    if where.ndim == 2 and where.shape == (values.size, len(dims)):
        if (where < 0).any() or (where >= np.array(dims)).any():
            raise _wrong(shown, name, "has an index outside its shape")
        where = np.ravel_multi_index(tuple(where.T), dims) if dims else np.zeros(values.size, np.int64)
    if values.ndim != 1 or where.shape != values.shape or ((where < 0) | (where >= count)).any():
        raise _wrong(shown, name, "has an index outside its shape")
    full = np.zeros(count, values.dtype)
    full[where] = values
    return onnx.TensorProto(name=name, data_type=dtype.value, dims=dims, raw_data=full.tobytes())


def own_bytes(tensor: ir.TensorProtocol) -> memoryview | bytes:
    """A tensor's bytes as ONNX stores them, without a copy where its array already holds them so."""
    if tensor.dtype.bitwidth >= 8:
        array = np.asarray(tensor.numpy())
        plain = array.flags.c_contiguous and array.dtype.byteorder in "<=|" and array.dtype.itemsize * 8 == tensor.dtype.bitwidth
        if plain and sys.byteorder == "little" and array.size:
            return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    return tensor.tobytes()


class Standin(ir.Tensor[Any]):
    """Takes a large tensor's place while its model is serialised: the ticket is written where its bytes belong."""

    def __init__(self, tensor: ir.TensorProtocol, ticket: bytes) -> None:
        super().__init__(
            _NoArray(), tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name, doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )  # fmt: skip
        self._ticket = ticket

    def tobytes(self) -> bytes:
        return self._ticket


class _NoArray:
    """What a stand-in holds: it may be written, never read."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError("a stand-in for a large tensor has no numbers")


def is_large(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes >= LARGE
