"""Runs planned jobs on this machine, several at once while their memory allows it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from onnxbridge.pipeline.isolated import run_isolated
from onnxbridge.pipeline.plan import Planned


def run_locally(jobs: Sequence[Planned], workers: int, total: int) -> Generator[tuple[Planned, dict[str, Any]], None, None]:
    """The outcomes, as jobs finish.

    The next job starts once a worker is free and the memory set aside for those that run leaves enough for it; one that needs
    all of it runs alone. Closing the iterator ends the jobs that run.
    """
    waiting = list(jobs)
    running: dict[Future[dict[str, Any]], Planned] = {}
    stop = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    free = total - sum(one.memory for one in running.values())
                    found = next((one for one in waiting if one.memory <= free), None if running else waiting[0])
                    if found is None:
                        break
                    waiting.remove(found)
                    running[pool.submit(run_isolated, found.job, found.limits, stopped=stop.is_set)] = found
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            stop.set()
