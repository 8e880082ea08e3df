"""HDF5 files of Keras (`.h5`, and the weights in a `.keras` archive): refused where they would make HDF5 open another file."""

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

_MOST_OBJECTS = 1_000_000


def check(path: str | os.PathLike[str], kind: str) -> None:
    """Refuse a Keras file with links, or with content that is stored in other files.

    Raises:
        UnsafeFileError: naming the link or the dataset.
    """
    shown = os.fspath(path)
    with open(open_file(path), "rb") as file:
        if kind == "keras-h5":
            _check(file, shown)
            return
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".h5"):
                    with _seekable(archive, member) as content:
                        _check(content, f"{shown}: {quoted(member.filename)}")


@contextmanager
def _seekable(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[BinaryIO]:
    """A member as a file; a compressed one, where every step back would decompress it from its start, as a temporary one."""
    with archive.open(member) as packed:
        if member.compress_type == zipfile.ZIP_STORED:
            yield cast(BinaryIO, packed)
            return
        with tempfile.TemporaryFile() as plain:
            shutil.copyfileobj(packed, plain)
            yield cast(BinaryIO, plain)


def _check(file: BinaryIO, shown: str) -> None:
    import h5py

    with h5py.File(file, "r") as content:
        waiting: list[tuple[str, Any]] = [("", content)]
        seen: set[Any] = set()
        while waiting:
            path, group = waiting.pop()
            for name in group:
                link, location = group.get(name, getlink=True), f"{path}/{name}"
                if not isinstance(link, h5py.HardLink):
                    raise _refused(shown, location, "is a link")
                found = group.get(name)
                if isinstance(found, h5py.Dataset) and (found.external or found.is_virtual):
                    raise _refused(shown, location, "is stored in another file")
                key = h5py.h5o.get_info(found.id).addr
                if isinstance(found, h5py.Group) and key not in seen:
                    waiting.append((location, found))
                seen.add(key)
                if len(seen) > _MOST_OBJECTS:
                    raise LimitError(f"{shown}: holds more than {_MOST_OBJECTS} objects; save the model again.")


def _refused(shown: str, location: str, why: str) -> UnsafeFileError:
    return UnsafeFileError(f"{shown}: {quoted(location)} {why}, which is not followed; save the model again.")
