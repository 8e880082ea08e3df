"""Checks of Keras' HDF5 files (`.h5`, and the weights in a `.keras` archive): those that make HDF5 open other files are
rejected.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io.safe_files import open_file, quoted

_MAX_OBJECTS = 1_000_000


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
                    with _seekable(archive, member) as content:
                        _check(content, f"{label}: {quoted(member.filename)}")


@contextmanager
def _seekable(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    """An archive member as a seekable file; a compressed one is decompressed to a temporary file."""
    with archive.open(member) as packed:
        if member.compress_type == zipfile.ZIP_STORED:
            yield cast(BinaryIO, packed)
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(packed, unpacked)
            yield cast(BinaryIO, unpacked)


def _check(file: BinaryIO, label: str) -> None:
    import h5py

    with h5py.File(file, "r") as content:
        pending: list[tuple[str, Any]] = [("", content)]
        seen: set[Any] = set()
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
                if isinstance(found, h5py.Group) and key not in seen:
                    pending.append((location, found))
                seen.add(key)
                if len(seen) > _MAX_OBJECTS:
                    raise LimitError(f"{label}: holds more than {_MAX_OBJECTS} objects; save the model again.")


def _error(label: str, location: str, reason: str) -> UnsafeFileError:
    return UnsafeFileError(f"{label}: {quoted(location)} {reason}, which is not followed; save the model again.")
