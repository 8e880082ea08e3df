"""Paths for frameworks that open files by name: what is opened there is what was checked, whatever happens to the file meanwhile.

A private folder has a symbolic link to an open descriptor of each file (/proc/self/fd/N): nothing is copied, and no file is found
by its name a second time. Systems without these links get the path itself.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from onnxbridge.hub.io.safe_files import check_only_regular_files_below, checked_path, open_file, open_inside

_MAX_FILES = 256
"""The most files of a folder that are held open."""
_DESCRIPTORS = "/proc/self/fd"


class Pinned:
    """A file or a folder of a model; `path` is where frameworks open it, until `close`.

    Raises:
        UnsafeFileError: if it, or something in the folder, is no regular file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source = checked_path(path)
        self.path = self.source
        self._folder = ""
        self._descriptors: list[int] = []
        is_folder = os.path.isdir(self.source)
        if is_folder:
            check_only_regular_files_below(self.source)
        names = _files(self.source) if is_folder else []
        if not os.path.isdir(_DESCRIPTORS) or len(names) > _MAX_FILES:
            return
        self._folder = tempfile.mkdtemp(prefix="onnxbridge-")
        try:
            target = Path(self._folder, os.path.basename(os.path.realpath(self.source)))
            if not is_folder:
                self._link(target, open_file(self.source))
            for name in names:
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                self._link(target / name, open_inside(self.source, name, f"{self.source}: holds"))
            self.path = str(target)
        except BaseException:
            self.close()
            raise

    def _link(self, path: Path, descriptor: int) -> None:
        self._descriptors.append(descriptor)
        path.symlink_to(f"{_DESCRIPTORS}/{descriptor}")

    def close(self) -> None:
        """Close the files and remove the folder."""
        while self._descriptors:
            os.close(self._descriptors.pop())
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Pinned:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def shown(self, text: str) -> str:
        """A message with the path that the user gave."""
        return text.replace(self.path, self.source)


def _files(folder: str) -> list[str]:
    """The relative paths of all that is in a folder and is no folder, at any depth; links are not followed."""
    found: list[str] = []
    waiting = [""]
    while waiting and len(found) <= _MAX_FILES:
        inner = waiting.pop()
        with os.scandir(os.path.join(folder, inner)) as entries:
            for entry in entries:
                name = os.path.join(inner, entry.name)
                (waiting if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode) else found).append(name)
    return sorted(found)
