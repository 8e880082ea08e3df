"""Reads the files of Core ML models: a specification and, in a package, its weight files.

All files are opened through `hub.io.safe_files`, so that no path leads out of a package. (coremltools' package reader also
writes the manifest when it opens one.)
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxbridge.errors import UnsafeFileError
from onnxbridge.frameworks import coremltools
from onnxbridge.hub.io.safe_files import Buffer, checked_path, map_file, open_file, open_inside, quoted, write_pieces

MAX_MANIFEST_BYTES = 16 << 20
HINT = "save the model again with coremltools"
SENTINEL = 0xDEADBEEF
# Dtype codes of weight files: MIL's dtype name, and the bits of an element.
BLOB_TYPES = {
    1: ("FLOAT16", 16), 2: ("FLOAT32", 32), 3: ("UINT8", 8), 4: ("INT8", 8), 6: ("INT16", 16), 7: ("UINT16", 16),
    8: ("INT4", 4), 9: ("UINT1", 1), 10: ("UINT2", 2), 11: ("UINT4", 4), 12: ("UINT3", 3), 13: ("UINT6", 6), 14: ("INT32", 32),
    15: ("UINT32", 32),
}  # fmt: skip


@dataclass
class Weights:
    """The folder of a model's weight files: `location` in `folder`. Files are opened lazily, and only once."""

    folder: str
    location: str = ""
    _files: dict[str, Buffer] = field(default_factory=dict)

    def blob(self, name: str, offset: int) -> tuple[str, memoryview, int]:
        """The dtype name, the bytes and the number of elements of the blob at an offset of a weight file.

        Raises:
            UnsafeFileError: if there is no blob.
        """
        # Only the last component of the name is used: weight files are in one folder.
        base = name.replace("\\", "/").rsplit("/", 1)[-1]
        if base not in self._files:
            if not self.folder:
                raise UnsafeFileError(f"the weight file {quoted(base)} is missing; {HINT}.")
            location = f"{self.location}/{base}" if self.location else base
            self._files[base] = map_file(open_inside(self.folder, location, "the program stores its weights in"))
        data = self._files[base]
        header = bytes(data[offset : offset + 64]) if 0 <= offset <= len(data) - 64 else b""
        sentinel, kind, size, data_offset, padding = struct.unpack_from("<IIQQQ", header) if header else (0,) * 5
        dtype_name, bits = BLOB_TYPES.get(kind, ("", 8))
        if bits >= 8:  # only sub-byte dtypes are padded; old writers leave the field uninitialized
            padding = 0
        if (
            sentinel != SENTINEL
            or not dtype_name
            or data_offset + size > len(data)
            or padding > 8 * size
            or (8 * size - padding) % bits
        ):
            raise UnsafeFileError(f"the weight file {quoted(base)} has no weights at {offset}; {HINT}.")
        return dtype_name, memoryview(data)[data_offset : data_offset + size], (8 * size - padding) // bits


def load(path: str | os.PathLike[str]) -> tuple[Any, Weights]:
    """Load the specification of an `.mlmodel` file or `.mlpackage` folder, and locate its weights.

    Raises:
        UnsafeFileError: for a damaged file, or a path that leads out of the package.
    """
    shown = checked_path(path)
    if os.path.isdir(shown):
        root = _model_location(shown)
        data = map_file(open_inside(shown, root, f"{shown}: its manifest locates the model in"))
        weights = Weights(shown, f"{root.rpartition('/')[0]}/weights")
    else:
        data = map_file(open_file(shown))
        weights = Weights("")
    spec = coremltools().proto.Model_pb2.Model()
    try:
        spec.ParseFromString(bytes(data))
    except Exception as error:  # protobuf's exception class cannot be named without importing it
        raise UnsafeFileError(f"{shown}: is not a Core ML model ({error}); {HINT}.") from error
    return spec, weights


def _model_location(package: str) -> str:
    """The location of the model in a package, from its manifest."""
    data = map_file(open_inside(package, "Manifest.json", f"{package}: the package needs"))
    if len(data) > MAX_MANIFEST_BYTES:
        raise UnsafeFileError(f"{package}: its manifest has {len(data)} bytes; the limit is {MAX_MANIFEST_BYTES}; {HINT}.")
    try:
        found = json.loads(bytes(data))
        item = found["itemInfoEntries"][found["rootModelIdentifier"]]["path"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise UnsafeFileError(f"{package}: its manifest does not name a model ({type(error).__name__}); {HINT}.") from error
    if not isinstance(item, str):
        raise UnsafeFileError(f"{package}: its manifest does not name a model; {HINT}.")
    return f"Data/{item}"


def copy_weights(weights: Weights, target: Path) -> None:
    """Copy the weight files of a package to another folder."""
    source = os.path.join(weights.folder, weights.location)
    for name in sorted(os.listdir(source)) if weights.folder and os.path.isdir(source) else ():
        descriptor = open_inside(weights.folder, f"{weights.location}/{name}", "the package has")
        write_pieces(target / name, [map_file(descriptor)])
