"""Resource limits of what a model file can ask for."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from onnxbridge.errors import UsageError


@cache
def _physical_memory() -> int:
    """Memory in bytes available to this process: the machine's, or its container's limit if that is lower."""
    try:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        available = 8 << 30
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            available = min(available, int(Path(name).read_text()))
    return available


class Limits(NamedTuple):
    """Resource limits of what a model file can ask for.

    Attributes:
        tensor_bytes: bytes of one tensor that is computed; the weights in the file itself are not counted.
        total_bytes: bytes of all tensors that are in use at once.
        rank: dimensions of a tensor.
        loop_iterations: iterations of all loops in one run.
        items: items of a sequence.
        seconds: time of one run in the bundled executor, None for no limit.
        folding_seconds: time of all constant folding while one model is read or converted.
        reading_seconds: time of reading a model in a process of its own, and of each run there.
    """

    tensor_bytes: int = min(4 << 30, _physical_memory() // 2)
    total_bytes: int = min(16 << 30, _physical_memory() * 4 // 5)
    rank: int = 32
    loop_iterations: int = 10_000_000
    items: int = 1_000_000
    seconds: float | None = None
    folding_seconds: float = 120.0
    reading_seconds: float = 600.0


_present: ContextVar[Limits | None] = ContextVar("onnxbridge_limits", default=None)
_KEYS = {
    "tensor": ("tensor_bytes", "bytes"), "total": ("total_bytes", "bytes"), "time": ("folding_seconds", "seconds"),
    "reading": ("reading_seconds", "seconds"),
}  # fmt: skip
_UNITS: dict[str, dict[str, int]] = {
    "bytes": {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
    "seconds": {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600},
}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([A-Za-z]*)")
EXAMPLE = "tensor=8GiB,total=32GiB,time=10m,reading=1h"


def present_limits() -> Limits:
    """The limits in force here: those of the innermost `limiting`, or the default ones."""
    return _present.get() or Limits()


@contextlib.contextmanager
def limiting(limits: Limits | None) -> Iterator[None]:
    """Put limits into force in this block; None leaves those that are."""
    if limits is None:
        yield
        return
    token = _present.set(limits)
    try:
        yield
    finally:
        _present.reset(token)


def parsed_limits(text: str) -> Limits:
    """The limits that a text such as "tensor=8GiB,time=10m" states; the others have their defaults.

    Raises:
        UsageError: if it is not in that form.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key not in _KEYS:
            raise UsageError(f"{part.strip()!r} is not a limit; write them as {EXAMPLE}")
        name, unit = _KEYS[key]
        found[name] = quantity(value, unit)
    return Limits(**found)  # type: ignore[arg-type]


def quantity(text: str, kind: str) -> int | float:
    """A number of bytes ("8GiB") or seconds ("10m").

    Raises:
        UsageError: if it is none, or not above 0.
    """
    match = _QUANTITY.fullmatch(text.strip())
    scale = _UNITS[kind].get(match[2].lower()) if match else None
    if match is None or scale is None or float(match[1]) <= 0:
        raise UsageError(f"{text!r} is not a number of {kind}, such as {'8GiB' if kind == 'bytes' else '10m'}")
    number = float(match[1]) * scale
    return round(number) if kind == "bytes" else number
