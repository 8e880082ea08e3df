"""Puts artifacts where they belong: complete or not at all, never over something else, and never over the source."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from onnxbridge.errors import LimitError, OnnxbridgeError, UsageError

Save = Callable[[Path], Sequence[str | os.PathLike[str]]]
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL_WORDS = tuple(os.strerror(code) for code in _FULL)


def placed(path: Path, force: bool, save: Save, source_files: Sequence[Path] = ()) -> list[Path]:
    """Let `save` write in a folder of its own beside `path`, then move what it wrote into place.

    An artifact may be a file, a folder (.mlpackage) or several files that share a stem. Symbolic links are replaced, never
    followed.

    Raises:
        UsageError: if something is there already and `force` is not given, if it is one of `source_files` or a folder that
            holds no model, if the folder is missing, or the system refuses the name.
        LimitError: if the disk is full.
    """
    if reason := obstacle(path, force, source_files):
        raise UsageError(reason)
    folder = path.parent
    try:
        workshop = Path(tempfile.mkdtemp(prefix=".onnxbridge-", dir=folder))
    except OSError as e:
        raise disk_error(e, folder) from e
    try:
        made = [Path(p) for p in save(workshop / path.name)]
        targets = [folder / m.relative_to(workshop) for m in made]
        for target in targets:
            if reason := obstacle(target, force, source_files):
                raise UsageError(reason)
        for source, target in zip(made, targets, strict=True):
            if os.path.lexists(target):
                os.replace(target, workshop / f"replaced-{target.name}")
            os.replace(source, target)
        return targets
    except OnnxbridgeError:
        raise
    except Exception as e:
        if isinstance(e, OSError) or any(words in str(e) for words in _FULL_WORDS) or _is_full(folder):
            raise disk_error(e, path) from e
        raise
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def obstacle(path: Path, force: bool, source_files: Sequence[Path] = ()) -> str:
    """Why nothing can be written at `path`, "" where it can."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {str(folder)!r} to write {path.name!r} into"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{str(folder)!r} cannot be written to"
    try:
        os.lstat(path)
        there = True
    except FileNotFoundError:
        there = False
    except OSError as e:  # a name that is too long, for one
        return f"{str(path)!r} cannot be written: {e.strerror}"
    if source_part(path, source_files):
        return f"{str(path)!r} belongs to the source, which is never replaced; write under another name (-o, output=)"
    if not there:
        return ""
    if not force:
        return f"{str(path)!r} exists; --force (force=True) replaces it"
    if path.is_dir() and not path.is_symlink() and not _is_model_folder(path):
        return f"{str(path)!r} is a folder that holds no model, which is not replaced; write under another name (-o, output=)"
    return ""


def source_part(path: Path, source_files: Sequence[Path]) -> bool:
    """Whether `path` is one of the source's files, lies inside a folder of it, or is a folder that one of them lies in."""
    target = Path(os.path.realpath(path.parent), path.name)  # a link at `path` itself is replaced, not followed
    for file in source_files:
        for own in {Path(os.path.abspath(file)), Path(os.path.realpath(file))}:
            own = Path(os.path.realpath(own.parent), own.name)
            inside_source = own.is_dir() and own in target.parents
            if target == own or inside_source or target in own.parents or _is_same(target, own):
                return True
    return False


def _is_same(a: Path, b: Path) -> bool:
    """Whether two paths are one and the same file, also by hard links or names that differ in case only."""
    try:
        return not a.is_symlink() and os.path.samefile(a, b)
    except OSError:
        return False


def _is_model_folder(path: Path) -> bool:
    from onnxbridge.hub.io.detect_format import recognise

    return not any(path.iterdir()) or recognise(path) in ("savedmodel", "mlpackage")


def disk_error(e: Exception, path: Path) -> OnnxbridgeError:
    """What the system said when something was written, as an error of ours."""
    if (isinstance(e, OSError) and e.errno in _FULL) or any(words in str(e) for words in _FULL_WORDS) or _is_full(path.parent):
        reason = os.strerror(e.errno) if isinstance(e, OSError) and e.errno else "no space left on device"
        return LimitError(f"{str(path)!r} cannot be written: {reason}")
    reason = (e.strerror if isinstance(e, OSError) else "") or str(e)
    return UsageError(f"{str(path)!r} cannot be written: {reason}")


def _is_full(folder: Path) -> bool:
    """Whether the disk has no room left for even a small file, as a framework that failed to write may not say."""
    try:
        return shutil.disk_usage(folder).free < 1 << 16
    except OSError:
        return False
