"""How much a run of a model may take."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple


@cache
def _physical_memory() -> int:
    """Bytes of memory that this process may use at most: the machine's, or its container's if that is less."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        most = 8 << 30
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            most = min(most, int(Path(name).read_text()))
    return most


class Limits(NamedTuple):
    """What one run may take. `seconds` None is no limit."""

    tensor_bytes: int = _physical_memory() // 2
    total_bytes: int = _physical_memory() * 4 // 5
    rank: int = 32
    trips: int = 10_000_000
    items: int = 1_000_000
    seconds: float | None = None
