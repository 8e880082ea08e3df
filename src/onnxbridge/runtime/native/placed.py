"""Machine code in memory, where it can be found again by its address; for Linux on x86-64."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import sys
from typing import NamedTuple


class Piece(NamedTuple):
    """Code and data that were loaded: where they lie, and where the code ends."""

    memory: mmap.mmap
    base: int
    border: int


_pieces: list[Piece] = []  # the code lives as long as the process


@functools.cache
def possible() -> bool:
    """Whether this is a system that this module knows."""
    return sys.platform.startswith("linux") and platform.machine() == "x86_64" and sys.byteorder == "little"


def room(size: int) -> tuple[mmap.mmap, int]:
    """Memory for code and data, and where it lies."""
    memory = mmap.mmap(-1, max(1, size))
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def closed(piece: Piece) -> bool:
    """From now on what is run can no longer be written, and what may be written is not run."""
    rights = mmap.PROT_READ | mmap.PROT_EXEC
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(piece.base), ctypes.c_size_t(piece.border), rights):
        return False
    _pieces.append(piece)
    return True


def found(name: str) -> int:
    """The address of a function of the system's libraries, 0 if they have none."""
    function = getattr(ctypes.CDLL(None), name, None)
    return ctypes.cast(function, ctypes.c_void_p).value or 0 if function is not None else 0
