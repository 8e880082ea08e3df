"""Safe access to a model's files: no links, pipes or devices, and nothing outside the model's folder.

Every check is made on the opened file (`fstat`), after an open that does not follow links, so that replacing a file between
check and read has no effect.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from onnxbridge.errors import LimitError, UnsafeFileError, UsageError

Buffer: TypeAlias = bytes | memoryview | mmap.mmap
SEEK_ZEROS = 1 << 20
RELEASE_INTERVAL = 1 << 26
_MAX_FILES = 100_000
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_WINDOWS_ROOT = re.compile(r"[A-Za-z]:|[\\/]")


def quoted(name: str | bytes) -> str:
    """A name from a file, escaped and truncated for printing."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return repr(text if len(text) <= 120 else text[:117] + "...")


def checked_path(path: str | os.PathLike[str]) -> str:
    """The path as a string.

    Raises:
        UnsafeFileError: if it contains a NUL character, at which system calls would truncate it.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise UnsafeFileError(f"{quoted(text)}: the path contains a NUL character; correct the path.")
    return text


def open_file(path: str | os.PathLike[str]) -> int:
    """Open the regular file that the user named and return its descriptor; a link is followed, since the user chose it."""
    text = checked_path(path)
    try:
        before = os.stat(text)
        if not stat.S_ISREG(before.st_mode):
            raise UnsafeFileError(f"{text}: is {_file_kind(before.st_mode)}, not a file; name a regular file.")
        descriptor = os.open(text, _FLAGS)
    except FileNotFoundError:
        raise UsageError(f"{text}: no such file.") from None
    except OSError as error:
        raise UsageError(f"{text}: cannot be opened ({error.strerror}).") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise UnsafeFileError(f"{text}: is {_file_kind(mode)}, not a file; name a regular file.")
    return descriptor


def open_inside(folder: str, location: str, shown: str) -> int:
    """Open the regular file at `location` under `folder`, without following links, and return its descriptor.

    `shown` starts every error message: the model and the tensor that refer to the file.
    """
    parts = _parts(location, shown)
    reached = folder or "."
    opened_parent: int | None = None
    relative = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
    try:
        if relative:
            opened_parent = os.open(reached, os.O_RDONLY | os.O_DIRECTORY)
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            reached = part if relative else os.path.join(reached, part)
            before = os.stat(reached, dir_fd=opened_parent, follow_symlinks=False)
            _check_entry(before, shown, location, last)
            if relative or last:
                opened = os.open(reached, _FLAGS | _NO_LINK | (0 if last else os.O_DIRECTORY), dir_fd=opened_parent)
                if opened_parent is not None:
                    os.close(opened_parent)
                opened_parent = opened
                after = os.fstat(opened)
                _check_entry(after, shown, location, last)
                if not os.path.samestat(before, after):
                    raise UnsafeFileError(f"{shown} {quoted(location)}, which changed while it was opened; try again.")
        assert opened_parent is not None
        descriptor, opened_parent = opened_parent, None
        return descriptor
    except FileNotFoundError:
        raise UnsafeFileError(f"{shown} {quoted(location)}, which does not exist; put it beside the model.") from None
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise LimitError(f"{shown} {quoted(location)}: too many open files; raise the limit with `ulimit -n`.") from None
        raise UnsafeFileError(
            f"{shown} {quoted(location)}, which cannot be opened ({error.strerror}); make it a readable file."
        ) from None
    finally:
        if opened_parent is not None:
            os.close(opened_parent)


def check_only_regular_files_below(folder: str | os.PathLike[str]) -> None:
    """Check that a folder contains, at any depth, only folders and regular files without further hard links.

    For frameworks that open the files of a model's folder themselves. The folder itself may be a link, since the user chose it.
    """
    top = checked_path(folder)
    waiting, count = [""], 0
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(os.path.join(top, inner)) as entries:
                for entry in entries:
                    location, found = os.path.join(inner, entry.name), entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(found.st_mode)
                    _check_entry(found, f"{top}: holds", location, last=not is_folder)
                    count += 1
                    if is_folder:
                        waiting.append(location)
                    if count > _MAX_FILES:
                        raise LimitError(f"{top}: holds more than {_MAX_FILES} files; name the model's own folder.")
        except OSError as error:
            shown = quoted(inner or os.curdir)
            raise UnsafeFileError(f"{top}: its folder {shown} cannot be read ({error.strerror}); make it readable.") from None


def _parts(location: str, shown: str) -> list[str]:
    """The components of a relative location that stays inside."""
    if not location or "\0" in location:
        raise UnsafeFileError(f"{shown} {quoted(location)}, which is no file name; write the model again.")
    if _WINDOWS_ROOT.match(location):
        raise UnsafeFileError(f"{shown} {quoted(location)}, an absolute path; only files inside the model's folder are read.")
    parts = [part for part in re.split(r"[\\/]" if os.sep == "\\" else "/", location) if part != "."]
    if not parts or "" in parts or ".." in re.split(r"[\\/]", location):
        raise UnsafeFileError(f"{shown} {quoted(location)}, which leaves the model's folder; only files inside it are read.")
    return parts


def _check_entry(found: os.stat_result, shown: str, location: str, last: bool) -> None:
    """Refuse everything but folders as parents and a regular file with a single hard link as the last part."""
    right = stat.S_ISREG(found.st_mode) if last else stat.S_ISDIR(found.st_mode)
    if not right:
        link = f"{'is' if last else 'goes through'} {_file_kind(found.st_mode)}"
    elif last and found.st_nlink > 1:
        link = "is a hard link"
    else:
        return
    raise UnsafeFileError(f"{shown} {quoted(location)}, which {link}; copy the file itself into the model's folder.")


def _file_kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFREG: "a file",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "a special file")


def map_file(descriptor: int) -> mmap.mmap | bytes:
    """Map an opened file into memory and close its descriptor."""
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if os.fstat(descriptor).st_size else b""
    finally:
        os.close(descriptor)


def refuse_overwriting(path: str | os.PathLike[str], force: bool) -> None:
    """Check that a path can be written: its folder exists, and the path does not, unless `force`."""
    text = checked_path(path)
    folder = os.path.dirname(text) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{text}: the folder {folder!r} does not exist; create it first.")
    if os.path.isdir(text) and not os.path.islink(text):
        raise UsageError(f"{text}: is a folder; name a file in it.")
    if not force and os.path.lexists(text):
        raise UsageError(f"{text}: exists already; use --force (force=True) to replace it.")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to `path` when the block succeeds and removed otherwise.

    A symbolic link at `path` is itself replaced; its target is never written.
    """
    target = Path(checked_path(path))
    temporary = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_pieces(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file piece by piece; long runs of zeros become holes of a sparse file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | getattr(os, "O_BINARY", 0), 0o666)
    zeros = bytes(SEEK_ZEROS)
    with open(descriptor, "wb") as file:
        for piece in pieces:
            view = memoryview(piece).cast("B")
            for at in range(0, len(view), SEEK_ZEROS):
                part = view[at : at + SEEK_ZEROS]
                if len(part) == SEEK_ZEROS and part[0] == 0 and part[-1] == 0 and bytes(part) == zeros:
                    file.seek(SEEK_ZEROS, os.SEEK_CUR)
                else:
                    file.write(part)
                if at % RELEASE_INTERVAL == 0:  # a tensor may be larger than the memory
                    _release_pages(view)
            _release_pages(view)
        file.truncate()


def _release_pages(view: memoryview) -> None:
    """Release the pages of a mapped file that were read through this view, so that copying weights does not fill the memory."""
    owner: object = view.obj
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is not None and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)
