"""Reads the `.params` files of MXNet 2, which are NumPy's `.npz` archives (`mx.npx.savez`), without MXNet."""

from __future__ import annotations

import io
import math
import os
import tokenize
from typing import Any

import numpy as np

from onnxbridge.errors import UnsafeFileError
from onnxbridge.hub.io import zip_archives
from onnxbridge.hub.io.resource_limits import claim
from onnxbridge.hub.io.safe_files import quoted

Array = np.ndarray[Any, Any]

_HINT = "save it again with mx.npx.savez"
_MAX_HEADER = 1 << 16


def read(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of an archive by name. Those that are stored without compression are views of the mapped file.

    Raises:
        UnsafeFileError: if the archive or an array is invalid, or an array is sparse or has Python objects.
    """
    archive = zip_archives.open_archive(path, _HINT)
    found = {}
    for name in archive.members:
        if not name.endswith(".npy"):
            raise UnsafeFileError(f"{archive.shown}: {quoted(name)} is no array; {_HINT}.")
        if name.endswith(("/indices.npy", "/indptr.npy", "/format.npy")):
            raise UnsafeFileError(f"{archive.shown}: {quoted(name)} belongs to a sparse array, which is not supported.")
        found[name.removesuffix(".npy")] = _array(archive, name)
    return found


def _array(archive: zip_archives.Archive, name: str) -> Array:
    member = archive.members[name]
    if member.deflated:
        claim((member.size,), np.uint8)
        data = memoryview(zip_archives.content(archive, name, member.size))
    else:
        data = memoryview(archive.data)[member.start : member.start + member.stored]
    head = io.BytesIO(bytes(data[:_MAX_HEADER]))
    try:
        version = np.lib.format.read_magic(head)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = header(head)
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, EOFError, RecursionError, MemoryError) as error:
        raise UnsafeFileError(f"{archive.shown}: {quoted(name)} is not an array: {str(error)[:200]}; {_HINT}.") from None
    start, size = head.tell(), math.prod(shape) * dtype.itemsize
    if dtype.hasobject or any(d < 0 for d in shape) or start + size != len(data):
        raise UnsafeFileError(f"{archive.shown}: {quoted(name)} is damaged, or no array of numbers; {_HINT}.")
    return np.ndarray(shape, dtype, buffer=data, offset=start, order="F" if fortran else "C")
