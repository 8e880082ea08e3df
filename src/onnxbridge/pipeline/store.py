"""Where artifacts and the records of finished jobs go: a folder, or any URL that fsspec opens."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from onnxbridge.atomic_write import disk_error, obstacle
from onnxbridge.errors import MissingFrameworkError, OnnxbridgeError, UsageError

HIDDEN = ".onnxbridge"
"""The folder in the store for records, and for artifacts that are not complete."""


class Store:
    """A folder of artifacts, each complete or not there, with a record of every finished job.

    Args:
        place: a folder, which is made where its parent exists, or a URL such as "s3://bucket/models".

    Raises:
        UsageError: if the folder cannot be made or the URL has an unknown scheme.
        MissingFrameworkError: if a package for the URL's scheme is not installed.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        text = os.fspath(place)
        self.place, self._root = text, text
        self._remote: Any = None
        if is_url(text):
            self._remote, self._root = filesystem(text)
        self.folder = None if self._remote is not None else Path(self._root)
        if self.folder is not None and not self.folder.is_dir():
            if not self.folder.absolute().parent.is_dir() or self.folder.exists():
                raise UsageError(f"there is no folder {str(self.folder.absolute().parent)!r} to make {self.folder.name!r} in")
            with contextlib.suppress(FileExistsError):  # another job makes it
                self.folder.mkdir()

    @contextlib.contextmanager
    def fetched(self, job: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The job with its sources on this machine; those of URLs are copied, and removed at the end."""
        local = dict(job)
        with contextlib.ExitStack() as stack:
            for key in ("source", "weights"):
                if isinstance(job.get(key), str) and is_url(job[key]):
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="onnxbridge-")))
                    local[key] = str(_downloaded(job[key], folder))
            yield local

    @contextlib.contextmanager
    def working(self) -> Iterator[Path]:
        """An empty folder on the same disk, for what a job writes before it is complete. It is removed at the end."""
        folder = self._make_working()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _make_working(self) -> Path:
        if self.folder is None:
            return Path(tempfile.mkdtemp(prefix="onnxbridge-"))
        parent = self.folder / HIDDEN / "working"
        if parent in Path(tempfile.gettempdir()).parents:  # the folder of an isolated process, which is removed with it
            parent = Path(tempfile.gettempdir())
        try:
            parent.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=f"{platform.node()}-{os.getpid()}-", dir=parent.absolute()))
        except OSError as e:
            raise disk_error(e, parent) from e

    def clean(self) -> None:
        """Remove what processes of this machine that were killed left behind."""
        import psutil

        for folder in () if self.folder is None else (self.folder / HIDDEN / "working").glob(f"{platform.node()}-*"):
            pid = folder.name.removeprefix(f"{platform.node()}-").partition("-")[0]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                shutil.rmtree(folder, ignore_errors=True)
        if self.folder is not None:
            with contextlib.suppress(OSError):  # it is not there, or other jobs run
                (self.folder / HIDDEN / "working").rmdir()

    def put(
        self, paths: Sequence[Path], id: str, force: bool = False, source_files: Sequence[Path] = ()
    ) -> list[dict[str, Any]]:  # fmt: skip
        """Move complete files or folders that a job wrote into the store, and give the name, bytes and SHA-256 of each.

        Raises:
            UsageError: if something is there that no job of this store wrote, and `force` is not given.
        """
        from onnxbridge.hub.ir.provenance import sha256

        described = [{"path": path.name, "bytes": _bytes(path), "sha256": sha256(path)} for path in paths]
        if self.folder is None:
            for path in paths:
                self._upload(path)
            return described
        for path in paths:
            target = self.folder / path.name
            own = force or target.name in self._written() if os.path.lexists(target) else False
            if reason := obstacle(target, own, source_files):
                raise UsageError(reason)
        before = [o for o in (self.record(id) or {}).get("outputs", ()) if o["path"] not in {d["path"] for d in described}]
        # Written before they are moved: if it is killed in between, they are known as its own.
        self.write_record({"id": id, "status": "writing", "outputs": [*before, *described]})
        for path in paths:
            target = self.folder / path.name
            if target.is_dir() and not target.is_symlink():
                os.replace(target, path.parent / f"replaced-{path.name}")
            os.replace(path, target)
        return described

    def has(self, outputs: Sequence[Mapping[str, Any]]) -> bool:
        """Whether artifacts are still what they were when they were written."""
        from onnxbridge.hub.ir.provenance import sha256

        with tempfile.TemporaryDirectory(prefix="onnxbridge-") as temporary:
            for output in outputs:
                try:
                    if self.folder is not None:
                        path = self.folder / output["path"]
                    elif not self._remote.exists(self._at(output["path"])):
                        return False
                    else:
                        path = _copied(self._remote, self._at(output["path"]), Path(temporary))
                    if sha256(path) != output["sha256"]:
                        return False
                except (OSError, OnnxbridgeError):
                    return False
        return True

    def record(self, id: str) -> dict[str, Any] | None:
        """The outcome of a finished job, or what one that was killed was writing; None if there is none that can be read."""
        found = self.read_text(f"{HIDDEN}/{id}.json")
        try:
            known = None if found is None else json.loads(found)
        except ValueError:
            return None
        return known if isinstance(known, dict) and known.get("id") == id else None

    def write_record(self, outcome: Mapping[str, Any]) -> None:
        """Record that a job has finished.

        Raises:
            LimitError: if the disk is full.
        """
        self.write_text(f"{HIDDEN}/{outcome['id']}.json", json.dumps(outcome))

    def write_text(self, name: str, text: str) -> None:
        """Write a file of the store, which is replaced as a whole.

        Raises:
            LimitError: if the disk is full.
            UsageError: if it cannot be written for another reason.
        """
        from onnxbridge.hub.io.safe_files import replacing

        if self.folder is None:
            with self._remote.open(self._at(name), "w", encoding="utf-8") as file:
                file.write(text)
            return
        path = self.folder / name
        try:
            path.parent.mkdir(exist_ok=True)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except OSError as e:
            raise disk_error(e, path) from e

    def append(self, name: str, line: str) -> None:
        """Append a line to a file of the store, so that it is there even if the machine stops next.

        Raises:
            OSError: if the disk is full.
        """
        if self.folder is None:
            self.write_text(name, f"{self.read_text(name) or ''}{line}\n")
            return
        with open(self.folder / name, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
            file.flush()
            os.fsync(file.fileno())

    def exists(self, name: str) -> bool:
        """Whether the store has a file."""
        return self.read_text(name) is not None

    def read_text(self, name: str) -> str | None:
        """A file of the store, None where there is none."""
        try:
            if self.folder is not None:
                return (self.folder / name).read_text(encoding="utf-8")
            with self._remote.open(self._at(name), "r", encoding="utf-8") as file:
                return str(file.read())
        except (OSError, UnicodeDecodeError):
            return None

    def _written(self) -> set[str]:
        """The names of artifacts that jobs of this store wrote."""
        assert self.folder is not None
        found: set[str] = set()
        for path in (self.folder / HIDDEN).glob("*.json"):
            known = self.record(path.stem) or {}
            found.update(output["path"] for output in known.get("outputs") or ())
        return found

    def _upload(self, path: Path) -> None:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        for file in files:
            name = file.relative_to(path.parent).as_posix()
            self._remote.makedirs(str(PurePosixPath(self._at(name)).parent), exist_ok=True)
            self._remote.put_file(str(file), self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def is_url(text: str) -> bool:
    """Whether a path is a URL such as s3://bucket/net.onnx."""
    scheme, found, _ = text.partition("://")
    return bool(found) and scheme.isidentifier()


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, None for this machine's, and the path in it.

    Raises:
        UsageError: if no package of fsspec knows the scheme.
        MissingFrameworkError: if the package for the scheme is not installed.
    """
    try:
        import fsspec
    except ImportError:
        raise MissingFrameworkError(f"{url!r}: URLs need fsspec: pip install 'onnxbridge[batch]'") from None
    try:
        found, path = fsspec.core.url_to_fs(url)
    except ImportError as e:
        raise MissingFrameworkError(f"{url!r}: {e}") from None
    except ValueError as e:
        raise UsageError(f"{url!r}: {e}") from None
    if "file" in (found.protocol if isinstance(found.protocol, tuple) else (found.protocol,)):
        return None, path
    return found, path


def _downloaded(url: str, folder: Path) -> Path:
    remote, path = filesystem(url)
    if remote is None:
        return Path(path)
    if not remote.exists(path):
        raise UsageError(f"{url}: no such file.")
    found = _copied(remote, path, folder)
    for name in () if found.suffix != ".onnx" else _weights_beside(found):
        _copied(remote, f"{path.rpartition('/')[0]}/{name}", folder)
    return found


def _copied(remote: Any, path: str, folder: Path) -> Path:
    """A copy of a file or a folder of a file system in a folder of this machine."""
    target = folder / PurePosixPath(path).name
    remote.get(path, str(target), recursive=bool(remote.isdir(path)))
    return target


def _weights_beside(path: Path) -> list[str]:
    """The names of the files with weights that an ONNX file needs beside it; they are not there yet."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    graph = onnx.load(path, load_external_data=False).graph
    tensors = [t for t in graph.initializer if uses_external_data(t)]
    names = {ExternalDataInfo(t).location for t in tensors}
    return sorted(n for n in names if PurePosixPath(n).name == n)


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size
