"""What a batch will run: names made unique, one shard, the largest first, and how much memory each job may take."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxbridge.errors import UsageError
from onnxbridge.pipeline.isolated import Limits
from onnxbridge.pipeline.job_keys import bytes_of, checked_job
from onnxbridge.pipeline.store import is_url

BASE, PER_BYTE = 1 << 30, 4
"""What a conversion is estimated to take: memory for the frameworks, and so many bytes for each byte of the source."""
_RESERVED = 0.1
"""The share of the memory that is left to everything else."""


@dataclass(frozen=True)
class Planned:
    """A job of a batch: `memory` bytes are set aside while it runs."""

    job: Mapping[str, Any]
    size: int
    memory: int
    limits: Limits


def planned(
    jobs: Sequence[Mapping[str, Any]], output: str, *, workers: int = 1, shard: tuple[int, int] = (1, 1),
    seconds: float | None = None, memory: int | None = None, total: int | None = None, threads: int | None = None,
) -> list[Planned]:  # fmt: skip
    """The jobs of one shard, the largest first.

    Args:
        output: the folder or URL for jobs that have none of their own.
        workers: how many jobs run at once.
        shard: the number of this shard, from 1, and how many there are.
        seconds, memory: limits for jobs without `timeout` and `memory`.
        total: bytes of memory of this machine, None where jobs run elsewhere.
        threads: how many each job may use.
    """
    found = [with_limits({"output": output, **job}, workers, seconds, memory, total, threads) for job in unique_names(jobs)]
    index, count = shard
    mine = [p for p in found if _bucket(str(p.job["name"]), count) == index - 1]
    return sorted(mine, key=lambda p: p.size, reverse=True)


def with_limits(
    job: Mapping[str, Any], workers: int, seconds: float | None, memory: int | None, total: int | None, threads: int | None = None
) -> Planned:
    size = source_bytes(job)
    declared = bytes_of(job.get("memory")) or memory
    limit = declared
    if limit is None and total is not None:
        limit = min(total, max(total // workers, 2 * (BASE + PER_BYTE * size)))
    timeout = job.get("timeout", seconds)
    return Planned(job, size, limit or BASE + PER_BYTE * size, Limits(timeout, limit, threads))


def unique_names(jobs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The jobs with names under which their artifacts do not replace each other; jobs that are the same are there once.

    Raises:
        UsageError: if two jobs were given the same name.
    """
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        made = checked_job(job)
        name, number = str(made["name"]), 1
        while found.get(made["name"], made) != made:
            if job.get("name"):
                raise UsageError(f"two jobs have the name {name!r}")
            number += 1
            made["name"] = f"{name}-{number}"
        found[made["name"]] = made
    return list(found.values())


def parsed_shard(text: str) -> tuple[int, int]:
    """ "2/8": the second of eight.

    Raises:
        UsageError: for anything else.
    """
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"{text!r} is not a shard; the second of eight is 2/8")
    return int(found[1]), int(found[2])


def _bucket(name: str, count: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % count


def source_bytes(job: Mapping[str, Any]) -> int:
    """The bytes of a job's sources on this machine; 0 for URLs and factories, which are not known."""
    total = 0
    for part in (job["source"], job.get("weights")):
        if isinstance(part, str) and not is_url(part) and os.path.exists(part):
            path = Path(part)
            files = [f for f in path.rglob("*") if f.is_file()] if path.is_dir() else [path]
            if path.suffix == ".onnx":  # weights lie beside it, under any name that starts like its own
                files += [f for f in path.parent.glob(f"{path.name}*") if f.is_file() and f != path]
            total += sum(f.stat().st_size for f in files)
    return total


def machine_memory() -> int:
    """The bytes of memory that a batch may take: what is free now, within the limits of a container."""
    import psutil

    free = psutil.virtual_memory().available
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            free = min(free, int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return int(max(free, 0) * (1 - _RESERVED))
