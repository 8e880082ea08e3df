"""The folder in which Numba caches the compiled kernels of this installation."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two processes may compile the same kernel, and the files of one of them stay
    fcntl = None  # type: ignore[assignment]

UNUSED = 30 * 24 * 60 * 60
"""Seconds without use after which the folder of another version is removed."""
_NAME = re.compile(r"kernels-[0-9a-f]{16}")


@functools.cache
def folder() -> Path | None:
    """The folder; None where there is none that only this user can write, since the code in it is executed.

    Numba checks only the source file of a kernel, not those of the helpers that it calls, so the name has a hash of all of them,
    and of where they lie: Numba keeps the files of each installation apart, and so must those who check and remove them.
    """
    root = os.environ.get("ONNXBRIDGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "onnxbridge"
    )
    place = Path(root) / f"kernels-{_sources()}"
    with contextlib.suppress(OSError):
        new = not place.exists()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        if safe(place) and not _replaceable(place) and os.access(place, os.R_OK | os.W_OK | os.X_OK):
            os.utime(place)  # records when it was last used
            if new:
                _clear(place.parent)
            return place
    return None


def _clear(root: Path) -> None:
    """Remove the folders of other versions that were not used for long."""
    for place in root.iterdir():
        with contextlib.suppress(OSError):
            old = time.time() - place.lstat().st_mtime > UNUSED
            if old and _NAME.fullmatch(place.name) and safe(place) and place.is_dir():
                shutil.rmtree(place, ignore_errors=True)  # links in it are removed and not followed


def has(module: str, name: str) -> bool:
    """Whether a kernel was compiled before."""
    place = folder()
    return place is not None and any(place.glob(f"*/{module}.{name}-*.nbi"))


def forget(module: str, name: str) -> None:
    """Remove the cached files of a kernel."""
    place = folder()
    for file in () if place is None else place.glob(f"*/{module}.{name}-*"):
        with contextlib.suppress(OSError):
            file.unlink()


def safe(path: Path) -> bool:
    """Whether a file or folder belongs to this user, is not a link, and is not writable by others."""
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        return False
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


def _replaceable(place: Path) -> bool:
    """Whether others could put another folder in place of this one, since they may rename it in a folder above."""
    for parent in place.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return True
    return False


@contextlib.contextmanager
def locked(module: str, name: str) -> Iterator[None]:
    """A context that one process at a time has for a kernel: one that is written but not yet sealed looks damaged to others."""
    place = folder()
    with contextlib.ExitStack() as stack:
        if fcntl is not None and place is not None:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(stack.enter_context(open(place / f"{module}.{name}.lock", "ab")), fcntl.LOCK_EX)
        yield


def intact(module: str, name: str) -> bool:
    """Whether the cached files of a kernel are this user's and as they were when it was compiled; True if there are none."""
    files = _files(module, name)
    if not files:
        return True
    try:
        return all(map(safe, files)) and _checksum(files) == _seal(files[0].parent, module, name).read_text()
    except (OSError, UnicodeDecodeError):
        return False


def seal(module: str, name: str) -> None:
    """Record a checksum of the files of a kernel that was compiled now."""
    files = _files(module, name)
    if files:
        path = _seal(files[0].parent, module, name)
        with contextlib.suppress(OSError):
            temporary = path.with_suffix(f".{os.getpid()}")
            temporary.write_text(_checksum(files))
            temporary.replace(path)


def _files(module: str, name: str) -> list[Path]:
    place = folder()
    found = () if place is None else place.glob(f"*/{module}.{name}-*.nb[ic]")
    return sorted(found)


def _seal(folder: Path, module: str, name: str) -> Path:
    return folder / f"{module}.{name}-.sha256"


def _checksum(files: Sequence[Path]) -> str:
    found = hashlib.sha256()
    for file in files:
        found.update(file.name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def _sources() -> str:
    """A hash of the sources of all kernels, of what declares them and says how large a tile is, and of where they lie."""
    here = resources.files(__package__)
    found = hashlib.sha256(f"{sys.platform} {here}".encode())  # the platform says whether there are tiles
    kernels = sorted(resources.files("onnxbridge.runtime.executor.kernels.numba").iterdir(), key=lambda p: p.name)
    table = resources.files("onnxbridge.runtime.executor.kernels.run") / "call_table.py"
    for file in (*(here / name for name in ("byte_tiles.py", "float_tiles.py", "jit.py", "llvm.py")), table, *kernels):
        if file.name.endswith(".py"):
            found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]
