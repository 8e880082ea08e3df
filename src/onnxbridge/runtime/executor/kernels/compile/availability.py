"""Whether compiled kernels are available."""

from __future__ import annotations

import functools
import importlib.util
import os
from importlib import metadata

LEAST = (0, 62)  # of Numba: the first whose LLVM has addresses without types


def available() -> bool:
    """Whether kernels can be compiled here: Numba is installed and new enough, and ONNXBRIDGE_NATIVE is not 0."""
    return not switched_off() and _installed()


def switched_off() -> bool:
    """Whether the user disabled compiled kernels."""
    return os.environ.get("ONNXBRIDGE_NATIVE") == "0"


def at_once() -> bool:
    """Whether the user requested compiled kernels from the first run on."""
    return os.environ.get("ONNXBRIDGE_NATIVE") == "1"


@functools.cache
def _installed() -> bool:
    """Whether Numba is installed and new enough, without importing it."""
    try:
        there = importlib.util.find_spec("numba") is not None
        return there and tuple(int(part) for part in metadata.version("numba").split(".")[:2]) >= LEAST
    except (ValueError, metadata.PackageNotFoundError):
        return False
