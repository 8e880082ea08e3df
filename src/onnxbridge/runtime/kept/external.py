"""Files beside a model that hold its weights: known by what they hold, too, and opened by the rules of the reader."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence

from onnxbridge.errors import OnnxbridgeError
from onnxbridge.hub.paths import open_inside

_SETTLED = 2.0  # seconds after which a change of a file shows in its time of change, on any file system
_BLOCK = 1 << 20

Beside = tuple[str, str]  # a location, and the SHA-256 of what is there


def of(path: str, locations: Sequence[str], since: float) -> list[Beside] | None:
    """What files at these locations beside a model hold; None if one may have changed after a moment, or is not there."""
    found = []
    for location in locations:
        try:
            descriptor = open_inside(os.path.dirname(path), location, path)
        except OnnxbridgeError:
            return None
        with open(descriptor, "rb", buffering=0) as file:
            facts = os.fstat(descriptor)
            if max(facts.st_mtime, facts.st_ctime) > min(since, time.time()) - _SETTLED:
                return None
            digest, block = hashlib.sha256(), bytearray(_BLOCK)
            while count := file.readinto(block):
                digest.update(memoryview(block)[:count])
        found.append((location, digest.hexdigest()))
    return found


def unchanged(path: str, files: Sequence[Beside]) -> bool:
    """Whether the files beside a model hold what they held."""
    found = of(path, [location for location, _ in files], float("inf"))
    return found is not None and [list(f) for f in found] == [list(f) for f in files]
