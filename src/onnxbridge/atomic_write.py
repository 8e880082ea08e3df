"""Atomic writing of artifacts: complete or not at all, without overwriting other files or the source."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from onnxbridge.errors import LimitError, OnnxbridgeError, UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PREFIX = ".onnxbridge-"
_LOCKED_WITHIN = 10.0
"""Seconds after which a temporary folder has its lock."""
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
Save = Callable[[Path], Sequence[str | os.PathLike[str]]]
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_WORDS = tuple(os.strerror(code) for code in _FULL)


def write_atomically(path: Path, force: bool, save: Save, source_files: Sequence[Path] = ()) -> list[Path]:
    """Let `save` write in a temporary folder beside `path`, then move what it wrote to `path`; returns the paths written.

    An artifact may be a file, a folder (.mlpackage) or several files that share a stem. Symbolic links are replaced, not
    followed.

    Raises:
        UsageError: if a path exists and `force` is not given, if it is one of `source_files` or a folder that is not a model, if
            the parent folder does not exist, or the system refuses the name.
        LimitError: if the disk is full.
    """
    if reason := obstacle(path, force, source_files):
        raise UsageError(reason)
    folder = path.parent
    _remove_abandoned(folder)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        lock = _locked(temporary)
    except OSError as e:
        raise disk_error(e, folder) from e
    try:
        written = [Path(p) for p in save(temporary / path.name)]
        targets = [folder / m.relative_to(temporary) for m in written]
        for target in targets:
            if reason := obstacle(target, force, source_files):
                raise UsageError(reason)
        for source, target in zip(written, targets, strict=True):
            _replace(source, target)
        return targets
    except OnnxbridgeError:
        raise
    except Exception as e:
        if isinstance(e, OSError) or any(words in str(e) for words in _FULL_WORDS) or _is_full(folder):
            raise disk_error(e, path) from e
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _replace(source: Path, target: Path) -> None:
    """Move a file or folder to `target` in one step, so that at any moment either what was there or what comes is there."""
    is_folder = target.is_dir() and not target.is_symlink()
    if not os.path.lexists(target) or not (is_folder or source.is_dir()):
        os.replace(source, target)
    elif not _exchange(source, target):  # then what was there is in the temporary folder
        os.replace(target, source.with_name(f"replaced-{target.name}"))
        os.replace(source, target)


def _exchange(a: Path, b: Path) -> bool:
    """Exchange two paths; False where the system cannot do that in one step. Source: renameat2(2) of Linux."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0


def _locked(folder: Path) -> int | None:
    """A descriptor that holds a lock on a folder as long as this process lives; None if the lock is held, or there are none."""
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_abandoned(folder: Path) -> None:
    """Remove the temporary folders of processes that were killed before they could."""
    if fcntl is None:
        return
    for path in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            old = time.time() - path.lstat().st_mtime > _LOCKED_WITHIN
            if old and path.lstat().st_uid == os.getuid() and (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def obstacle(path: Path, force: bool, source_files: Sequence[Path] = ()) -> str:
    """Why `path` cannot be written, "" where it can."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {str(folder)!r} to write {path.name!r} into"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {str(folder)!r} is not writable"
    try:
        os.lstat(path)
        exists = True
    except FileNotFoundError:
        exists = False
    except OSError as e:  # a name that is too long, for example
        return f"{str(path)!r} cannot be written: {e.strerror}"
    if source_part(path, source_files):
        return f"{str(path)!r} belongs to the source, which is never replaced; write under another name (-o, output=)"
    if not exists:
        return ""
    if not force:
        return f"{str(path)!r} exists; --force (force=True) replaces it"
    if path.is_dir() and not path.is_symlink() and not _is_model_folder(path):
        return f"{str(path)!r} is a folder, but not a model, and is not replaced; write under another name (-o, output=)"
    return ""


def source_part(path: Path, source_files: Sequence[Path]) -> bool:
    """Whether `path` is one of the source's files, inside a folder of the source, or a folder that contains one."""
    target = Path(os.path.realpath(path.parent), path.name)  # a link at `path` itself is replaced, not followed
    for file in source_files:
        for part in {Path(os.path.abspath(file)), Path(os.path.realpath(file))}:
            part = Path(os.path.realpath(part.parent), part.name)
            inside_source = part.is_dir() and part in target.parents
            if target == part or inside_source or target in part.parents or _is_same(target, part):
                return True
    return False


def _is_same(a: Path, b: Path) -> bool:
    """Whether two paths are the same file, also through hard links or case-insensitive names."""
    try:
        return not a.is_symlink() and os.path.samefile(a, b)
    except OSError:
        return False


def _is_model_folder(path: Path) -> bool:
    from onnxbridge.hub.io.detect_format import detect_format

    return not any(path.iterdir()) or detect_format(path) in ("savedmodel", "mlpackage")


def disk_error(e: Exception, path: Path) -> OnnxbridgeError:
    """An error of the system while writing, as an OnnxbridgeError."""
    if (isinstance(e, OSError) and e.errno in _FULL) or any(words in str(e) for words in _FULL_WORDS) or _is_full(path.parent):
        reason = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else "no space left on device"
        return LimitError(f"{str(path)!r} cannot be written: {reason}")
    reason = (e.strerror if isinstance(e, OSError) else "") or str(e)
    return UsageError(f"{str(path)!r} cannot be written: {reason}")


def _is_full(folder: Path) -> bool:
    """Whether the disk has no space left; a framework that failed to write may not report this."""
    try:
        return shutil.disk_usage(folder).free < 1 << 16
    except OSError:
        return False
