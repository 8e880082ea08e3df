"""Checks of Keras' HDF5 files (`.h5`, and the weights in a `.keras` archive): those that make HDF5 open other files are
rejected, and so are damaged ones.

In an isolated process everything in a file is read once, within limits: on damaged files the HDF5 library may crash, run without
end or allocate gigabytes, and Keras would run into that after a long import. This ends the process. Without isolation nothing
could end it, and only the structure is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.process_limits import is_isolated, limited_cpu, limited_memory
from onnxbridge.hub.io.safe_files import open_file, quoted

_MAX_OBJECTS = 1_000_000
_SECONDS, _BYTES_PER_SECOND = 3.0, 50e6
"""The processor time of reading a file; HDF5 reads ten times as fast."""
_MEMORY, _BLOCK = 256 << 20, 32 << 20
_MOST_COMPRESSED = 1032
"""How much smaller than its content deflate can make a file."""


def check(path: str | os.PathLike[str], kind: str) -> None:
    """Reject a Keras file with links, or with data stored in other files.

    Raises:
        UnsafeFileError: naming the link or the dataset.
    """
    label = os.fspath(path)
    with open(open_file(path), "rb") as file:
        if kind == "keras-h5":
            _check(file, label)
            return
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".h5"):
                    with _unpacked(archive, member) as content:
                        _check(content, f"{label}: {quoted(member.filename)}")


@contextmanager
def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    """An archive member as a temporary file: HDF5 seeks back and forth, for which `zipfile` reads a member from its start."""
    with archive.open(member) as packed, tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(packed, unpacked, _BLOCK)
        yield cast(BinaryIO, unpacked)


def _check(file: BinaryIO, label: str) -> None:
    import h5py

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    seconds = _SECONDS + size / _BYTES_PER_SECOND
    with limited_cpu(seconds), limited_memory(_MEMORY):
        content = h5py.File(file, "r")
    with content:
        with limited_cpu(seconds), limited_memory(_MEMORY):
            datasets = [pair for pair in _datasets(content, label) if pair[1].shape is not None]  # of the null dataspace
        total = 0
        for name, found in datasets:
            total += found.nbytes
            if total > size * _MOST_COMPRESSED:
                raise UnsafeFileError(
                    f"{label}: {quoted(name)} has {found.nbytes:,} bytes, in a file of {size:,}; save the model again."
                )
        if not is_isolated():
            return
        with limited_cpu(seconds + total / _BYTES_PER_SECOND):
            for _, found in datasets:
                with contextlib.suppress(TypeError):
                    _read_data(found)


def _datasets(content: Any, label: str) -> Iterator[tuple[str, Any]]:
    """Every dataset with its path. The attributes of all objects are read, and nothing outside of the file."""
    import h5py

    pending: list[tuple[str, Any]] = [("", content)]
    seen: set[Any] = set()
    _read_attributes(content)
    while pending:
        path, group = pending.pop()
        for name in group:
            link, location = group.get(name, getlink=True), f"{path}/{name}"
            if not isinstance(link, h5py.HardLink):
                raise _error(label, location, "is a link")
            found = group.get(name)
            if found is None:
                raise _error(label, location, "cannot be read")
            if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
                raise _error(label, location, "is stored in another file")
            key = h5py.h5o.get_info(found.id).addr
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > _MAX_OBJECTS:
                raise LimitError(f"{label}: holds more than {_MAX_OBJECTS} objects; save the model again.")
            _read_attributes(found)
            if isinstance(found, h5py.Group):
                pending.append((location, found))
            elif isinstance(found, h5py.Dataset):
                yield location, found


def _read_attributes(found: Any) -> None:
    for name in found.attrs:
        with contextlib.suppress(TypeError):  # of a type that NumPy has not; Keras reads only texts
            found.attrs[name]


def _read_data(found: Any) -> None:
    """Read a dataset in blocks of rows, of whole chunks where it is stored in chunks."""
    rows, row_bytes = (found.shape[0], found.nbytes // found.shape[0]) if found.shape and found.nbytes else (1, found.nbytes)
    step = min(rows, max(1, _BLOCK // max(row_bytes, 1)))
    if found.chunks is not None:
        step = -(-step // found.chunks[0]) * found.chunks[0]
    with limited_memory(_MEMORY + 3 * step * row_bytes):  # the member of an archive is copied twice
        for start in range(0, rows, step):
            found[start : start + step] if found.shape else found[()]


def _error(label: str, location: str, reason: str) -> UnsafeFileError:
    return UnsafeFileError(f"{label}: {quoted(location)} {reason}, which is not followed; save the model again.")
