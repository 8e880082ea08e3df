"""Where kept recordings lie: a folder of the user's own, bounded, of which the entry that was not used for longest goes first."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from onnxbridge.runtime.native import presence

SUFFIX = ".run"
_PART = ".part"
_SHARE = 8  # one entry takes this part of the bound at most
_ABANDONED = 3600  # seconds after which a half-written file is taken for one whose writer ended


def bound() -> int:
    """How many bytes all entries may take: ONNXBRIDGE_KEEP in MiB, 2048 by default; 0 keeps nothing."""
    given = os.environ.get("ONNXBRIDGE_KEEP", "")
    return (int(given) if given.isdigit() else 2048) << 20


def most() -> int:
    """How many bytes one entry may take."""
    return bound() // _SHARE


def folder() -> Path | None:
    """The folder of the entries, None where nothing is kept."""
    return presence.folder("runs") if bound() else None


def find(key: str) -> list[Path]:
    """The entries of a model, the one that was used last first."""
    place = folder()
    found = []
    if place is not None:
        with contextlib.suppress(OSError), os.scandir(place) as files:
            for file in files:
                if file.name.startswith(key) and file.name.endswith(SUFFIX):
                    found.append((file.stat().st_mtime_ns, Path(file.path)))
    return [path for _, path in sorted(found, reverse=True)]


def opened(path: Path) -> BinaryIO | None:
    """An entry to read, None for one that is not this user's own or that others may write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    file = os.fdopen(descriptor, "rb", buffering=0)
    facts = os.fstat(descriptor)
    own = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    if own and stat.S_ISREG(facts.st_mode) and not facts.st_mode & 0o022:
        return file
    file.close()
    return None


def used(path: Path) -> None:
    """Remember that an entry was used just now."""
    with contextlib.suppress(OSError):
        os.utime(path)


def write(name: str, size: int, fill: Callable[[BinaryIO], bool]) -> None:
    """Keep an entry of about this size if there is room; nobody sees half of it, and `fill` may still give it up.

    A full disk or a folder that cannot be written is no error: then nothing is kept.
    """
    place = folder()
    if place is None or size > most():
        return
    temporary = place / f"{secrets.token_hex(8)}{_PART}"
    with contextlib.suppress(OSError):
        if hasattr(os, "statvfs") and (room := os.statvfs(place)).f_bavail * room.f_frsize < 2 * size:
            return
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                whole = fill(file)
            if whole:
                os.replace(temporary, place / f"{name}{SUFFIX}")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _trim(place)


def _trim(place: Path) -> None:
    """Remove what was not used for longest until the rest is within the bound."""
    entries = []
    with os.scandir(place) as files:
        for file in files:
            facts = file.stat(follow_symlinks=False)
            if file.name.endswith(SUFFIX):
                entries.append((facts.st_mtime_ns, facts.st_size, file.path))
            elif file.name.endswith(_PART) and time.time() - facts.st_mtime > _ABANDONED:
                os.unlink(file.path)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= bound():
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        total -= size
