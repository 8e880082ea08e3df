"""Files that are opened for a model: never through a link, a pipe or a device, never outside the folder they belong to.

Every check is made on the opened file (`fstat`), after an open that does not follow links, so that a file that is exchanged
between the check and the read gains nothing.
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
FORGET = 1 << 26
_MOST_FILES = 100_000
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_WINDOWS_ROOT = re.compile(r"[A-Za-z]:|[\\/]")


def quoted(name: str | bytes) -> str:
    """A name from a file, made safe to print: escaped, and cut where it is long."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return repr(text if len(text) <= 120 else text[:117] + "...")


def named(path: str | os.PathLike[str]) -> str:
    """The path as text, refused where it holds a NUL character (system calls would cut it there)."""
    text = os.fspath(path)
    if not isinstance(text, str) or "\0" in text:
        raise UnsafeFileError(f"{quoted(text)}: the path holds a NUL character; name the file itself.")
    return text


def open_file(path: str | os.PathLike[str]) -> int:
    """A descriptor of the regular file that the user named; a link is followed, since the user chose it."""
    text = named(path)
    try:
        before = os.stat(text)
        if not stat.S_ISREG(before.st_mode):
            raise UnsafeFileError(f"{text}: is {_what(before.st_mode)}, not a file; name a regular file.")
        descriptor = os.open(text, _FLAGS)
    except FileNotFoundError:
        raise UsageError(f"{text}: there is no such file.") from None
    except OSError as error:
        raise UsageError(f"{text}: cannot be opened ({error.strerror}).") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise UnsafeFileError(f"{text}: is {_what(mode)}, not a file; name a regular file.")
    return descriptor


def open_inside(folder: str, location: str, shown: str) -> int:
    """A descriptor of the regular file at `location` under `folder`, reached through no link and having no other name.

    `shown` opens every error: the model and tensor that ask for the file.
    """
    parts = _parts(location, shown)
    reached = folder or "."
    held: int | None = None
    relative = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
    try:
        if relative:
            held = os.open(reached, os.O_RDONLY | os.O_DIRECTORY)
        for i, part in enumerate(parts):
            last = i == len(parts) - 1
            reached = part if relative else os.path.join(reached, part)
            before = os.stat(reached, dir_fd=held, follow_symlinks=False)
            _refuse(before, shown, location, last)
            if relative or last:
                opened = os.open(reached, _FLAGS | _NO_LINK | (0 if last else os.O_DIRECTORY), dir_fd=held)
                if held is not None:
                    os.close(held)
                held = opened
                after = os.fstat(opened)
                _refuse(after, shown, location, last)
                if not os.path.samestat(before, after):
                    raise UnsafeFileError(f"{shown} {quoted(location)}, which changed while it was opened; try again.")
        assert held is not None
        descriptor, held = held, None
        return descriptor
    except FileNotFoundError:
        raise UnsafeFileError(f"{shown} {quoted(location)}, which is not there; put it beside the model.") from None
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise LimitError(f"{shown} {quoted(location)}: too many open files; raise the limit with `ulimit -n`.") from None
        raise UnsafeFileError(
            f"{shown} {quoted(location)}, which cannot be opened ({error.strerror}); make it a readable file."
        ) from None
    finally:
        if held is not None:
            os.close(held)


def check_only_regular_files_below(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that holds, at any depth, anything but folders and regular files with one name each.

    For frameworks that open the files of a model's folder themselves. The folder may be reached through a link, which the user
    chose.
    """
    top = named(folder)
    waiting, count = [""], 0
    while waiting:
        inner = waiting.pop()
        try:
            with os.scandir(os.path.join(top, inner)) as entries:
                for entry in entries:
                    location, found = os.path.join(inner, entry.name), entry.stat(follow_symlinks=False)
                    is_folder = stat.S_ISDIR(found.st_mode)
                    _refuse(found, f"{top}: holds", location, last=not is_folder)
                    count += 1
                    if is_folder:
                        waiting.append(location)
                    if count > _MOST_FILES:
                        raise LimitError(f"{top}: holds more than {_MOST_FILES} files; name the model's own folder.")
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


def _refuse(found: os.stat_result, shown: str, location: str, last: bool) -> None:
    """Refuse everything but folders on the way and, at the end, a regular file with one name."""
    right = stat.S_ISREG(found.st_mode) if last else stat.S_ISDIR(found.st_mode)
    if not right:
        link = f"{'is' if last else 'goes through'} {_what(found.st_mode)}"
    elif last and found.st_nlink > 1:
        link = "is a hard link"
    else:
        return
    raise UnsafeFileError(f"{shown} {quoted(location)}, which {link}; copy the file itself into the model's folder.")


def _what(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFREG: "a file",
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "a special file")


def mapped(descriptor: int) -> mmap.mmap | bytes:
    """The bytes of an opened file without loading them; closes the descriptor."""
    try:
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if os.fstat(descriptor).st_size else b""
    finally:
        os.close(descriptor)


def refuse_overwriting(path: str | os.PathLike[str], force: bool) -> None:
    """Refuse to replace what is there, and to write where there is no folder."""
    text = named(path)
    folder = os.path.dirname(text) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{text}: there is no folder {folder!r}; create it first.")
    if os.path.isdir(text) and not os.path.islink(text):
        raise UsageError(f"{text}: is a folder; name a file in it.")
    if not force and os.path.lexists(text):
        raise UsageError(f"{text}: exists already; use --force (force=True) to replace it.")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary name in the same folder, which takes the place of `path` when the block ends well, and else is removed.

    A symbolic link at `path` is itself replaced; what it points to is never written.
    """
    target = Path(named(path))
    temporary = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_pieces(path: Path, pieces: Iterable[Buffer]) -> None:
    """Write a new file piece by piece; long runs of zeros become holes, as in the sparse file they may come from."""
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
                if at % FORGET == 0:  # a tensor may be larger than the memory
                    _forget_pages(view)
            _forget_pages(view)
        file.truncate()


def _forget_pages(view: memoryview) -> None:
    """Let go of the pages of a mapped file that were read through this view, so that copying weights does not fill the memory."""
    owner: object = view.obj
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    if owner is not None and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)
