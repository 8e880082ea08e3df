"""What a kept recording depends on: the model's bytes, the sources and packages it was made by, the machine, and the settings.

A model is known by what it holds, never by its name or date: hashing is quick beside reading, and a file that was replaced
can never be taken for the one before.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from typing import NamedTuple

from onnxbridge.runtime.native import drive, presence

_BLOCK = 1 << 20
_PACKAGES = ("numpy", "onnx", "onnx_ir", "ml_dtypes", "llvmlite")
_IRRELEVANT = tuple(f"ONNXBRIDGE_{name}" for name in ("CACHE", "KEEP", "MXNET_PYTHON", "THREADS"))  # threads are asked for

Source = tuple[str, int, int]  # a file of Python source, when it was changed, and its size


class Identity(NamedTuple):
    """A model's file as it was at one moment.

    `content` is the SHA-256 of its bytes, `key` stands for these and for everything that is not in a file.
    """

    path: str
    key: str
    content: bytes
    seen: tuple[int, ...]


def of(path: str | os.PathLike[str], most: int) -> Identity | None:
    """The identity of a file of at most so many bytes; None for anything else, which whoever reads it will refuse."""
    try:
        name = os.path.abspath(os.fspath(path))
        if not stat.S_ISREG(os.stat(name).st_mode):
            return None
        with open(name, "rb", buffering=0) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
                return None
            found = hashlib.sha256(_surroundings())
            digest, block = hashlib.sha256(), bytearray(min(_BLOCK, facts.st_size + 1))
            while count := file.readinto(block):
                digest.update(memoryview(block)[:count])
    except (OSError, TypeError, ValueError):
        return None
    found.update(digest.digest())
    return Identity(name, found.hexdigest()[:32], digest.digest(), seen(facts))


def seen(facts: os.stat_result) -> tuple[int, ...]:
    """What changes when a file is written or exchanged."""
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _surroundings() -> bytes:
    settings = sorted((k, v) for k, v in os.environ.items() if k.startswith("ONNXBRIDGE_") and k not in _IRRELEVANT)
    return repr((sys.version, __file__, presence.identity(), drive.threads(), settings)).encode()


def sources() -> list[Source] | None:
    """The source files that this process runs, those of packages that may change a result too; None if some are no files."""
    found = []
    plugins = sys.modules.get("onnxbridge.plugins")
    whole = {"onnxbridge"} | getattr(plugins, "rule_packages", set())
    for name, module in list(sys.modules.items()):
        if name in _PACKAGES or name.partition(".")[0] in whole:
            path = getattr(module, "__file__", None)
            try:
                facts = os.stat(path or "")
            except OSError:
                return None
            found.append((str(path), facts.st_mtime_ns, facts.st_size))
    return found


def unchanged(files: list[Source]) -> bool:
    """Whether source files are those that an entry was made by."""
    try:
        if not any(path == __file__ for path, _, _ in files):
            return False
        for path, changed, size in files:
            facts = os.stat(path)
            if facts.st_mtime_ns != changed or facts.st_size != size:
                return False
    except (OSError, TypeError, ValueError):
        return False
    return True
