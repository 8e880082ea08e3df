"""The parent's end of an isolated process: starts it, sends requests, and ends it where it does not answer."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxbridge import plugins
from onnxbridge.diagnostics import one_line
from onnxbridge.errors import LimitError, UnsafeFileError, UsageError
from onnxbridge.hub.io.limits import Limits
from onnxbridge.isolation.transfer import MAX_JSON_BYTES, Damaged, parsed, raised

_FRAMEWORK_BYTES = 8 << 30
"""What a framework may take beside the model: TensorFlow reserves memory for each thread."""
_BOOTSTRAP = (
    "import sys, pickle; start = pickle.load(sys.stdin.buffer); sys.path[:] = start['path']; "
    "from onnxbridge.isolation.worker import serve; serve(start)"
)
_VARIABLES = ("LANG", "LC_ALL", "PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONWARNINGS")
_PREFIXES = ("ONNXBRIDGE_", "OMP_", "OPENBLAS_", "MKL_", "NUMBA_", "TF_", "KMP_")
"""What the process keeps of the environment: how libraries find each other, and how many threads they use."""


class Process:
    """A process that works for one frontend. It starts with the first request."""

    def __init__(self, frontend: str, files: Sequence[str], limits: Limits) -> None:
        self.frontend, self.files, self.limits = frontend, list(files), limits
        self.measures: list[str] = []
        """What confines the process: known once it has started."""
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._close = weakref.finalize(self, _end, self.__dict__)

    @property
    def folder(self) -> Path:
        """The folder for models and arrays, which only these two processes use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="onnxbridge-"))
        return self._folder

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its reply.

        Raises:
            LimitError: if there is no reply in time, or the process took too much memory or processor time.
            UnsafeFileError: if the process crashed, or sent what it must not.
            Exception: what the frontend raised.
        """
        if self._process is None:
            self.start()
        self._send({"do": do, **request})
        return self._answer()

    @contextlib.contextmanager
    def _damage(self) -> Any:
        try:
            yield
        except Damaged as error:
            self.close()
            raise UnsafeFileError(f"{self._subject()}: the process that reads it sent {error} in a wrong form") from error

    def received(self, read: Any, *arguments: Any) -> Any:
        """What `read` finds in files that the process wrote."""
        with self._damage():
            return read(*arguments)

    def close(self) -> None:
        """End the process and remove its folder."""
        self._close()

    def start(self) -> None:
        """Start the process, and learn what confines it."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _BOOTSTRAP], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=_environment(self.folder),
        )  # fmt: skip
        read = [os.path.realpath(path if os.path.isdir(path) else os.path.dirname(path) or ".") for path in self.files]
        self._send({
            "path": _import_path(), "folder": str(self.folder), "frontend": self.frontend,
            "read": [*read, *([os.getcwd()] if plugins.imported() else [])], "imports": plugins.imported(),
            "limits": tuple(self.limits), "memory": self._memory(), "file_size": self.limits.total_bytes,
            "cpu_seconds": self.limits.reading_seconds * (os.cpu_count() or 1) + 60,
        })  # fmt: skip
        reply = self._answer()
        self.measures = [m for m in reply.get("measures", []) if isinstance(m, str)]

    def _memory(self) -> int:
        return self.limits.total_bytes + _FRAMEWORK_BYTES

    def _subject(self) -> str:
        return ", ".join(one_line(path) for path in self.files)

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            content = pickle.dumps(request)
        except Exception as error:
            raise UsageError(
                f"{self._subject()} is read in a process of its own, which cannot be given these inputs ({error}): "
                "give specifications or arrays, or read it in this process (--no-isolate, isolate=False)"
            ) from error
        with contextlib.suppress(BrokenPipeError):  # it has ended, so that there is no reply
            self._process.stdin.write(content)
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        """The next reply, if it is no error."""
        reply = self._receive(self.limits.reading_seconds)
        if "error" not in reply:
            return reply
        with self._damage():
            error = raised(reply["error"])
        raise self._too_large() if isinstance(error, MemoryError) else error

    def _receive(self, seconds: float) -> dict[str, Any]:
        """The next reply; what the process logs before it is logged here."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._line(deadline)
            if line is None:
                self.close()
                raise LimitError(f"{self._subject()}: not read within {seconds:g} seconds (--limits reading=SECONDS)")
            if not line:
                raise self._crashed()
            with self._damage():
                message = parsed(line)
                if not isinstance(message, dict):
                    raise Damaged("a message that is no object")
            if set(message) != {"log"}:
                return message
            logging.getLogger("onnxbridge").info("%s", one_line(str(message["log"])))

    def _line(self, deadline: float) -> bytes | None:
        """The next line of the process; None if there is none in time, b"" if it has ended."""
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                piece = os.read(stream, 1 << 20)
                if not piece or len(self._received) > MAX_JSON_BYTES:
                    return b""
                self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _crashed(self) -> Exception:
        """Why the process ended without a reply."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        log = _tail(self.folder / "log.txt")
        self.close()
        if code is not None and -code in (signal.SIGXCPU, signal.SIGKILL):
            return LimitError(f"{self._subject()}: reading it takes more time or memory than the limits allow (--limits)")
        if code is not None and -code == signal.SIGXFSZ:
            most = self.limits.total_bytes
            return LimitError(f"{self._subject()}: reading it writes more than {most:,} bytes (--limits total=SIZE)")
        if "MemoryError" in log or "bad_alloc" in log or "Cannot allocate memory" in log:
            return self._too_large()
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        return UnsafeFileError(f"{self._subject()}: the process that reads it crashed ({how}); export the model again.")

    def _too_large(self) -> LimitError:
        most = self._memory() // (1 << 20)
        return LimitError(f"{self._subject()}: reading it takes more than {most:,} MiB of memory (--limits total=SIZE)")


def _import_path() -> list[str]:
    """Where the process imports from: not the current folder, unless the user named modules, since models may be in it."""
    here, own = os.getcwd(), os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = [os.path.abspath(path) for path in sys.path]
    return [path for path in found if path != here or path == own or plugins.imported()]


def _environment(folder: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _VARIABLES or k.startswith(_PREFIXES)}
    return {**kept, "HOME": str(folder), "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder), "MALLOC_ARENA_MAX": "4"}


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 8192))
        return file.read().decode("utf-8", "replace")
    return ""


def _end(state: dict[str, Any]) -> None:
    process, state["_process"] = state.get("_process"), None
    if process is not None:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
    if state["_folder"] is not None:
        shutil.rmtree(state["_folder"], ignore_errors=True)


def available_measures() -> list[str]:
    """What would confine an isolated process on this system: those of "limits", "network", "files" and "calls" that it has."""
    process = Process("onnx", [], Limits())
    try:
        process.start()
        return process.measures
    finally:
        process.close()
