"""Resource limits of a model run."""

from __future__ import annotations

import contextlib
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple


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
    """Resource limits of one run; `seconds=None` means no time limit."""

    tensor_bytes: int = _physical_memory() // 2
    total_bytes: int = _physical_memory() * 4 // 5
    rank: int = 32
    loop_iterations: int = 10_000_000
    items: int = 1_000_000
    seconds: float | None = None
