"""What is there to run machine code: llvmlite, the processor, the folders for what is kept, and functions known by name."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
from pathlib import Path

LEAST = (0, 45)  # of llvmlite: the first whose LLVM has addresses without types and vectors of one number

symbols: dict[str, int] = {}  # what object files may name


def available() -> bool:
    """Whether machine code can be made and loaded here: llvmlite is installed and new enough, and ONNXBRIDGE_NATIVE is not 0."""
    return not switched_off() and package() is not None


def switched_off() -> bool:
    """Whether the user wants no machine code."""
    return os.environ.get("ONNXBRIDGE_NATIVE", "1") == "0"


@functools.cache
def package() -> str | None:
    """Which llvmlite is installed, told without importing it: where it lies and since when; None for none and for older ones."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return None
    told = re.search(rb"version_version = '(\d+)\.(\d+)", read(Path(spec.origin).with_name("_version.py")) or b"")
    if told is not None and tuple(map(int, told.groups())) < LEAST:
        return None
    return f"{spec.origin} {os.stat(spec.origin).st_mtime_ns}"


@functools.cache
def processor() -> str:
    """What the system says of the first processor apart from its present speed, "" where it says nothing."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        kept = (line for line in text.splitlines() if not line.startswith(("cpu MHz", "bogomips", "apicid", "initial apicid")))
        return "\n".join(kept)
    return ""


@functools.cache
def folder(kind: str, mode: int = 0o700) -> Path | None:
    """Where files of a kind are kept: in ONNXBRIDGE_CACHE, or the user's cache folder; None where that is not possible.

    It is this user's own, or the administrator's if nobody else may write there, as in the image of a container.
    """
    root = os.environ.get("ONNXBRIDGE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "onnxbridge"
    )
    with contextlib.suppress(OSError):
        place = Path(root) / kind
        place.mkdir(parents=True, exist_ok=True, mode=mode)
        facts = place.stat()
        safe = not hasattr(os, "getuid") or facts.st_uid == os.getuid() or (facts.st_uid == 0 and not facts.st_mode & 0o022)
        if safe and os.access(place, os.R_OK | os.X_OK):
            return place
    return None


def read(path: Path | None) -> bytes | None:
    """A file's content, None where there is none."""
    if path is not None:
        with contextlib.suppress(OSError):
            return path.read_bytes()
    return None
