"""Reads `.params` files, in every version of MXNet's format, without MXNet.

Dense arrays are views of the mapped file, not copies. Every count in the file is checked against the remaining bytes before
memory of that size is allocated.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.formats.mxnet import read_npz
from onnxbridge.formats.mxnet.dtypes import FLAGS
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.hub.io.safe_files import checked_path, map_file, open_file, quoted

LIST_MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
DENSE, ROW_SPARSE, CSR = 0, 1, 2
AUXILIARY = {DENSE: 0, ROW_SPARSE: 1, CSR: 2}
MAX_ELEMENTS = 1 << 50
MAX_DIMS = 32  # NumPy's limit in the versions that MXNet supports

Array = np.ndarray[Any, Any]


def read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a file by name, with the prefixes "arg:" and "aux:". Empty entries (MXNet's "none") are omitted.

    Raises:
        UnsafeFileError: if the file is invalid, or has no names.
    """
    label = checked_path(path)
    if _is_archive(path):
        return read_npz.read(path)
    names, arrays = read_list(path)
    if len(names) != len(arrays):
        raise UnsafeFileError(f"{label}: its arrays have no names; save them in a dictionary with mx.nd.save.")
    found: dict[str, Array] = {}
    for name, array in zip(names, arrays, strict=True):
        if name in found:
            raise UnsafeFileError(f"{label}: has two arrays called {quoted(name)}; save it again.")
        if array is not None:
            found[name] = array
    return found


def _is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether MXNet 2 has written the file."""
    data = map_file(open_file(path))
    return bytes(data[:4]) in (b"PK\x03\x04", b"PK\x05\x06")  # the second is an empty one


def read_list(path: str | os.PathLike[str]) -> tuple[list[str], list[Array | None]]:
    """The names (empty for a list saved without names) and the arrays of a file; an empty entry is None."""
    label = checked_path(path)
    reader = _Reader(map_file(open_file(path)), label)
    if reader.number("Q", "header") != LIST_MAGIC:
        raise UnsafeFileError(f"{label}: is not an MXNet parameter file.")
    reader.number("Q", "reserved field")
    arrays = [reader.array() for _ in range(reader.count("arrays", 8))]
    names = [reader.text() for _ in range(reader.count("names", 8))]
    if names and len(names) != len(arrays):
        raise UnsafeFileError(f"{label}: has {len(arrays)} arrays and {len(names)} names; it is damaged.")
    return names, arrays


class _Reader:
    """Reads the bytes of a file with bounds checks."""

    def __init__(self, data: Any, label: str) -> None:
        self._data = memoryview(data)
        self._offset = 0
        self._label = label

    @property
    def remaining(self) -> int:
        return len(self._data) - self._offset

    def damaged(self, reason: str) -> UnsafeFileError:
        return UnsafeFileError(f"{self._label}: is damaged at byte {self._offset}: {reason}.")

    def take(self, size: int, what: str) -> int:
        """Advance by `size` bytes and return the start."""
        if size > self.remaining:
            raise self.damaged(f"{what} needs {size} bytes, but {self.remaining} remain")
        start = self._offset
        self._offset += size
        return start

    def number(self, kind: str, what: str) -> int:
        layout = struct.Struct("<" + kind)
        found: int = layout.unpack_from(self._data, self.take(layout.size, what))[0]
        return found

    def count(self, what: str, least: int) -> int:
        """The number of items that follow, each of at least `least` bytes."""
        found = self.number("Q", f"the number of {what}")
        if found * least > self.remaining:
            raise self.damaged(f"{found} {what} do not fit into the remaining {self.remaining} bytes")
        return found

    def text(self) -> str:
        size = self.count("characters", 1)
        start = self.take(size, "a name")
        try:
            return bytes(self._data[start : start + size]).decode()
        except UnicodeDecodeError:
            raise self.damaged("a name is not UTF-8") from None

    def dims(self, ndim: int, kind: str = "q") -> tuple[int, ...]:
        if not 0 <= ndim <= MAX_DIMS:
            raise self.damaged(f"a shape of rank {ndim}")
        layout = struct.Struct(f"<{ndim}{kind}")
        return layout.unpack_from(self._data, self.take(layout.size, "a shape"))

    def shape(self) -> tuple[int, ...] | None:
        """A shape, None if its rank is unknown."""
        ndim = self.number("i", "a rank")
        return None if ndim == -1 else self.dims(ndim)

    def dtype(self) -> np.dtype[Any]:
        flag = self.number("i", "a dtype")
        if flag not in FLAGS:
            raise self.damaged(f"unknown dtype {flag}")
        return FLAGS[flag]

    def data(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A view of the elements that follow."""
        if any(d < 0 for d in shape) or math.prod(d for d in shape if d) > MAX_ELEMENTS:
            raise self.damaged(f"an array of shape {tuple(shape)}")
        start = self.take(math.prod(shape) * dtype.itemsize, f"an array of shape {tuple(shape)}")
        return np.ndarray(tuple(shape), dtype, buffer=self._data, offset=start)

    def array(self) -> Array | None:
        magic = self.number("I", "an array")
        if magic in (V2, V3):
            return self._array_v2(magic == V3)
        shape = self.shape() if magic == V1 else self.dims(magic, "I")
        if not shape:
            return None
        self.take(8, "a device")
        return self.data(shape, self.dtype())

    def _array_v2(self, np_shape: bool) -> Array | None:
        """A record with a storage type. Under np-shape semantics no dimensions mean a scalar, and -1 means unknown."""
        storage = self.number("i", "a storage type")
        if storage not in AUXILIARY:
            raise self.damaged(f"unknown storage type {storage}")
        stored = self.shape() if storage != DENSE else None
        shape = self.shape()
        if shape is None or (-1 in shape if np_shape else not shape):
            return None
        self.take(8, "a device")
        dtype = self.dtype()
        if storage == DENSE:
            return self.data(shape, dtype)
        if np_shape and not shape:
            raise self.damaged("a sparse array without dimensions")
        kinds = []
        for _ in range(AUXILIARY[storage]):
            kind, sizes = self.dtype(), self.shape()
            if kind.kind not in "iu" or sizes is None or len(sizes) != 1:
                raise self.damaged("the indices of a sparse array are not a 1-D integer array")
            kinds.append((sizes, kind))
        # the storage shape in the file may be stale: the number of indices is authoritative
        rows = kinds[-1][0][0]
        values = self.data((rows, *shape[1:]) if storage == ROW_SPARSE else (rows,), dtype)
        if stored is None:
            raise self.damaged("a sparse array without a storage shape")
        indices = [self.data(*k) for k in kinds]
        claim(shape, dtype)
        return self._from_rows(shape, values, *indices) if storage == ROW_SPARSE else self._from_csr(shape, values, *indices)

    def _check_range(self, indices: Array, size: int) -> None:
        if indices.size and not (int(indices.min()) >= 0 and int(indices.max()) < size):
            raise self.damaged("an index of a sparse array is out of range")

    def _from_rows(self, shape: tuple[int, ...], values: Array, rows: Array) -> Array:
        self._check_range(rows, shape[0])
        dense = np.zeros(shape, values.dtype)
        dense[rows.astype(np.int64)] = values
        return dense

    def _from_csr(self, shape: tuple[int, ...], values: Array, starts: Array, columns: Array) -> Array:
        if len(shape) != 2 or len(starts) != shape[0] + 1:
            raise self.damaged("a csr array's row starts do not fit its shape")
        starts = starts.astype(np.int64)
        if starts[0] != 0 or starts[-1] != len(values) or (np.diff(starts) < 0).any():
            raise self.damaged("a csr array's row starts are not ascending")
        self._check_range(columns, shape[1])
        dense = np.zeros(shape, values.dtype)
        dense[np.repeat(np.arange(shape[0]), np.diff(starts)), columns.astype(np.int64)] = values
        return dense
