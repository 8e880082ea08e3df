"""Writes `.params` files without MXNet, deterministically."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from onnxbridge.errors import Unsupported
from onnxbridge.formats.mxnet.dtypes import FLAGS
from onnxbridge.hub.io.safe_files import Buffer, replacing, write_pieces

LIST_MAGIC, V2, V3 = 0x112, 0xF993FAC9, 0xF993FACA
CPU = struct.pack("<ii", 1, 0)
_NUMBERS = {dtype: number for number, dtype in FLAGS.items()}


def flag(dtype: np.dtype[Any]) -> int:
    """The number of a dtype in MXNet's files.

    Raises:
        Unsupported: if MXNet does not have the dtype.
    """
    number = _NUMBERS.get(dtype.newbyteorder("<") if dtype.itemsize > 1 and dtype.kind in "iuf" else dtype)
    if number is None:
        raise Unsupported(f"MXNet has no dtype {dtype.name}")
    return number


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Write arrays by name ("arg:weight", "aux:mean").

    MXNet cannot load a file of mixed versions, so all arrays have the version that it loads by default, or that of np-shape
    semantics if there is a scalar.
    """
    with replacing(path) as temporary:
        write_pieces(temporary, pieces(arrays))


def pieces(arrays: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[Buffer]:
    """The bytes of the file, array by array."""
    yield struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))
    version = V2 if all(array.ndim for array in arrays.values()) else V3
    for array in arrays.values():
        yield struct.pack("<Iii", version, 0, array.ndim) + struct.pack(f"<{array.ndim}q", *array.shape)
        yield CPU + struct.pack("<i", flag(array.dtype))
        little = array if array.dtype.byteorder != ">" else array.astype(array.dtype.newbyteorder("<"))
        yield memoryview(np.ascontiguousarray(little).reshape(-1).view(np.uint8).data)
    yield struct.pack("<Q", len(arrays))
    for name in arrays:
        text = name.encode()
        yield struct.pack("<Q", len(text)) + text
