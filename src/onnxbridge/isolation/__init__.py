"""Reads and runs untrusted model files in a process that can be killed.

`frontend_for` wraps a frontend, so that what opens a file runs in a process of its own (`worker.py`), which the operating system
confines (`sandbox.py`). What comes back is data: a hub model as an ONNX file, arrays, and messages, all of which are checked as
untrusted files are (`transfer.py`). Live models, and code that the user names (MODULE:FACTORY), are the user's own and are not
isolated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from onnxbridge import plugins
from onnxbridge.errors import UsageError
from onnxbridge.hub.io.limits import present_limits
from onnxbridge.plugin_protocols import Frontend

Mode = bool | Literal["auto"]
"""Whether files are read in a process of their own; "auto": those of formats that are programs or that a framework opens."""

VARIABLE = "ONNXBRIDGE_ISOLATE"
_MODES: dict[str, Mode] = {"auto": "auto", "always": True, "never": False}
_mode: ContextVar[Mode] = ContextVar("onnxbridge_isolation", default=False)


def default_mode(otherwise: Mode) -> Mode:
    """What the environment variable ONNXBRIDGE_ISOLATE says, `otherwise` where it is not set.

    Raises:
        UsageError: if its value is none of auto, always and never.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return otherwise
    if name not in _MODES:
        raise UsageError(f"{VARIABLE}={name!r} is not one of {', '.join(_MODES)}")
    return _MODES[name]


@contextmanager
def isolating(mode: Mode | None) -> Iterator[None]:
    """Isolate the models that are read in this block; None leaves the setting as it is."""
    if mode is None:
        yield
        return
    token = _mode.set(mode)
    try:
        yield
    finally:
        _mode.reset(token)


def frontend_for(source: Any, name: str | None = None) -> Frontend:
    """The frontend of this name, or else the one that accepts the source; where the present setting isolates the source, one that
    does the same in another process.

    Raises:
        UsageError, UnsafeFileError: as `plugins.frontend_for`.
    """
    reader, mode = plugins.frontend_for(source, name), _mode.get()
    files = _files(source) if mode else []
    if not files or (mode == "auto" and not reader.isolates(source)):
        return reader
    from onnxbridge.isolation.frontend import IsolatedFrontend

    return IsolatedFrontend(reader, files, present_limits())


def _files(source: Any) -> list[str]:
    """The files and folders of a source; none if a part of it is a live object or code."""
    parts = [part for part in (source if isinstance(source, (tuple, list)) else [source]) if part is not None]
    found = [os.fspath(part) for part in parts if isinstance(part, (str, os.PathLike))]
    existing = [path for path in found if os.path.exists(path)]
    return existing if len(found) == len(parts) and found[:1] == existing[:1] else []
