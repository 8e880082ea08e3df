"""Tighter limits for a step of an isolated process, in which a library written in C parses what may be damaged.

Such a library may run without end, ask for any amount of memory, or crash. In an isolated process the operating system ends the
step; in the user's own process nothing is limited, since that would end it, too.
Source: Linux' man page setrlimit(2).
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

try:
    import resource

    _resource: ModuleType | None = resource
except ImportError:  # Windows
    _resource = None

_isolated = False


def in_isolated_process() -> None:
    """Say that this process is an isolated one, which its parent watches."""
    global _isolated
    _isolated = True


def is_isolated() -> bool:
    """Whether this process is an isolated one."""
    return _isolated


@contextlib.contextmanager
def limited_cpu(seconds: float) -> Iterator[None]:
    """End an isolated process if this block takes more processor time. Its parent then raises a LimitError."""
    with _soft_limit("RLIMIT_CPU", math.ceil(time.process_time() + seconds)):
        yield


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """Let allocations of an isolated process fail if this block needs so many bytes more than are in use."""
    used = _data_bytes() if _isolated else None
    with contextlib.nullcontext() if used is None else _soft_limit("RLIMIT_DATA", used + size):
        yield


@contextlib.contextmanager
def _soft_limit(kind: str, value: int) -> Iterator[None]:
    if not _isolated or _resource is None:
        yield
        return
    soft, hard = _resource.getrlimit(getattr(_resource, kind))
    lower = value if soft == _resource.RLIM_INFINITY else min(value, soft)
    _resource.setrlimit(getattr(_resource, kind), (lower, hard))
    try:
        yield
    finally:
        _resource.setrlimit(getattr(_resource, kind), (soft, hard))


def _data_bytes() -> int | None:
    """What counts against RLIMIT_DATA, where the system says it."""
    with contextlib.suppress(OSError):
        found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else None
    return None
