"""Files of Core ML models: a specification, and weight files beside it in a package.

Every file is opened through `hub.paths`, so nothing is followed out of a package; coremltools' own reader of packages also
writes the manifest when it opens one.
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
from onnxbridge.hub.io.safe_files import Buffer, mapped, named, open_file, open_inside, quoted, write_pieces

_MOST_MANIFEST = 16 << 20
_WAY_OUT = "save the model again with coremltools"
_SENTINEL = 0xDEADBEEF
# the numbers by which a weight file calls the types that it holds: MIL's name, and bits of an element
BLOB_TYPES = {
    1: ("FLOAT16", 16), 2: ("FLOAT32", 32), 3: ("UINT8", 8), 4: ("INT8", 8), 6: ("INT16", 16), 7: ("UINT16", 16),
    8: ("INT4", 4), 9: ("UINT1", 1), 10: ("UINT2", 2), 11: ("UINT4", 4), 12: ("UINT3", 3), 13: ("UINT6", 6), 14: ("INT32", 32),
    15: ("UINT32", 32),
}  # fmt: skip


@dataclass
class Weights:
    """The folder of a model's weight files: `location` below `folder`. A file is opened when it is first needed, and once."""

    folder: str
    location: str = ""
    _files: dict[str, Buffer] = field(default_factory=dict)

    def blob(self, name: str, offset: int) -> tuple[str, memoryview, int]:
        """The type, the bytes and the number of elements of what lies at an offset of a weight file.

        Raises:
            UnsafeFileError: where there is no such thing.
        """
        # Only the last part of the name counts: a file names one in its own folder.
        base = name.replace("\\", "/").rsplit("/", 1)[-1]
        if base not in self._files:
            if not self.folder:
                raise UnsafeFileError(f"the weight file {quoted(base)} is missing; {_WAY_OUT}.")
            location = f"{self.location}/{base}" if self.location else base
            self._files[base] = mapped(open_inside(self.folder, location, "the program has its weights in"))
        data = self._files[base]
        head = bytes(data[offset : offset + 64]) if 0 <= offset <= len(data) - 64 else b""
        sentinel, kind, size, start, padding = struct.unpack_from("<IIQQQ", head) if head else (0,) * 5
        known, bits = BLOB_TYPES.get(kind, ("", 8))
        if bits >= 8:  # only narrower types are padded, and older writers leave anything there
            padding = 0
        if sentinel != _SENTINEL or not known or start + size > len(data) or padding > 8 * size or (8 * size - padding) % bits:
            raise UnsafeFileError(f"the weight file {quoted(base)} has no weights at {offset}; {_WAY_OUT}.")
        return known, memoryview(data)[start : start + size], (8 * size - padding) // bits


def load(path: str | os.PathLike[str]) -> tuple[Any, Weights]:
    """The specification in an `.mlmodel` file or `.mlpackage` folder, and where its weights lie.

    Raises:
        UnsafeFileError: for a damaged file, and where a package reaches out of itself.
    """
    shown = named(path)
    if os.path.isdir(shown):
        root = _root(shown)
        data = mapped(open_inside(shown, root, f"{shown}: its manifest has its model in"))
        weights = Weights(shown, f"{root.rpartition('/')[0]}/weights")
    else:
        data = mapped(open_file(shown))
        weights = Weights("")
    spec = coremltools().proto.Model_pb2.Model()
    try:
        spec.ParseFromString(bytes(data))
    except Exception as error:  # protobuf's errors have no base that can be named without importing it
        raise UnsafeFileError(f"{shown}: is not a Core ML model ({error}); {_WAY_OUT}.") from error
    return spec, weights


def _root(package: str) -> str:
    """Where the manifest of a package has its model."""
    data = mapped(open_inside(package, "Manifest.json", f"{package}: the package needs"))
    if len(data) > _MOST_MANIFEST:
        raise UnsafeFileError(f"{package}: its manifest has {len(data)} bytes, of at most {_MOST_MANIFEST}; {_WAY_OUT}.")
    try:
        found = json.loads(bytes(data))
        item = found["itemInfoEntries"][found["rootModelIdentifier"]]["path"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise UnsafeFileError(f"{package}: its manifest names no model ({type(error).__name__}); {_WAY_OUT}.") from error
    if not isinstance(item, str):
        raise UnsafeFileError(f"{package}: its manifest names no model; {_WAY_OUT}.")
    return f"Data/{item}"


def copy_weights(weights: Weights, target: Path) -> None:
    """Write every weight file of a package into another folder."""
    source = os.path.join(weights.folder, weights.location)
    for name in sorted(os.listdir(source)) if weights.folder and os.path.isdir(source) else ():
        descriptor = open_inside(weights.folder, f"{weights.location}/{name}", "the package has")
        write_pieces(target / name, [mapped(descriptor)])
