"""Machine code in memory, where it can be found again by its address; for Linux on x86-64."""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform
import struct
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple


class Piece(NamedTuple):
    """Code and data that were loaded: where they lie, where the code ends, and which eight bytes of it are addresses.

    The addresses are told by their distance from the beginning, with the name of what lies outside of any object file.
    """

    memory: mmap.mmap
    base: int
    border: int
    sites: list[tuple[int, str]]


_pieces: list[Piece] = []  # the code lives as long as the process


@functools.cache
def possible() -> bool:
    """Whether this is a system that this module knows."""
    return sys.platform.startswith("linux") and platform.machine() == "x86_64" and sys.byteorder == "little"


def piece_of(address: int) -> Piece | None:
    """The loaded piece that an address lies in."""
    return next((p for p in _pieces if p.base <= address < p.base + len(p.memory)), None)


def placed(code: bytes, border: int, inner: Any, outer: Mapping[int, int]) -> int:
    """Load code that was linked before, whose first `border` bytes are run; gives its address, 0 if that is not possible.

    `inner` (n, 2) are the places of addresses in it, with their distances from its beginning; `outer` of other addresses.
    """
    memory, base = room(len(code))
    memory[: len(code)] = code
    for at, distance in inner.tolist():
        struct.pack_into("<Q", memory, at, base + distance)
    for at, address in outer.items():
        struct.pack_into("<Q", memory, at, address)
    return base if closed(Piece(memory, base, border, [])) else 0


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
