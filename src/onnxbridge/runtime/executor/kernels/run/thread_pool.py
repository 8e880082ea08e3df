"""Running tables of calls, with helper threads that claim shares of each call until none are left.

The table is run by a compiled driver (`numba/driver.py`), which does not return to Python between calls. Helper threads
sleep between runs; one that is late or descheduled claims fewer shares.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

from onnxbridge.runtime.executor.kernels.run.call_table import ARGUMENTS, OPEN, STATE, UNITS, WIDTH, Call
from onnxbridge.runtime.requested_threads import requested_threads

EACH = 3  # shares of a call for each thread, so that a descheduled thread leaves some to the others


class Table:
    """Consecutive calls; arguments are changed in `cells` where an array has another address in the next run."""

    __slots__ = ("_kernels", "cells", "shared")

    def __init__(self, calls: Sequence[Call]) -> None:
        self._kernels = [call.kernel for call in calls]
        rows = np.zeros((len(calls), WIDTH), np.int64)
        for row, (kernel, arguments, units) in zip(rows, calls, strict=True):
            row[:ARGUMENTS] = kernel.address, kernel.form, units
            row[ARGUMENTS : ARGUMENTS + len(arguments)] = arguments
        self.cells = rows.reshape(-1)
        self.shared = any(call.units > 1 for call in calls)

    def run(self, iterations: int = 1, moves: Sequence[tuple[int, int]] = ()) -> None:
        """Run the calls `iterations` times, incrementing some cells after each, with the helper threads if they are free."""
        lead, pool, count = driver()[0], _pool, threads()
        if lead is None:
            return self._interpreted(iterations, moves)
        helpers = count - 1 if self.shared and count > 1 and pool.lock.acquire(blocking=False) else 0
        moved = np.array(moves, np.int64)
        cells, steps = (array.__array_interface__["data"][0] for array in (self.cells, moved))
        try:
            if helpers:
                pool.wake(helpers)
            lead(pool.address, cells, len(self._kernels), EACH * count if helpers else 1, iterations, steps, len(moves))
        finally:
            if helpers:
                pool.release()

    def _interpreted(self, iterations: int, moves: Sequence[tuple[int, int]]) -> None:
        """The same where kernels are Python functions."""
        for _ in range(iterations):
            for kernel, row in zip(self._kernels, self.cells.reshape(-1, WIDTH), strict=True):
                kernel.interpreted(row[ARGUMENTS:].tolist(), int(row[UNITS]))
            for cell, step in moves:
                self.cells[cell] += step


@functools.cache
def threads() -> int:
    """How many threads share the work of a run: ONNXBRIDGE_THREADS, or as many as there are processors for this process."""
    if (given := requested_threads()) is not None:
        return given
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def driver() -> tuple[Callable[..., None] | None, Callable[..., None] | None]:
    """The driver's functions of the leader and the helpers, which run without the GIL; None where kernels are Python."""
    from onnxbridge.runtime.executor.kernels.compile import jit
    from onnxbridge.runtime.executor.kernels.numba.driver import help, lead

    if not jit.COMPILED:
        return None, None
    return jit.compiled(lead, "i" * 7).ctypes, jit.compiled(help, "ii").ctypes


class _ThreadPool:
    """The helper threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._state = np.zeros(STATE // 8, np.int64)
        self.address: int = self._state.__array_interface__["data"][0]
        self._queues: list[SimpleQueue[None]] = []

    def wake(self, helpers: int) -> None:
        """Wake helpers for a run."""
        while len(self._queues) < helpers:
            queue: SimpleQueue[None] = SimpleQueue()
            self._queues.append(queue)
            arguments = (self, queue, len(self._queues))
            threading.Thread(target=_helper_main, args=arguments, daemon=True, name="onnxbridge").start()
        self._state[OPEN // 8] = 1
        for queue in self._queues[:helpers]:
            queue.put(None)

    def release(self) -> None:
        """Let the helpers sleep, and other callers use them."""
        self._state[OPEN // 8] = 0
        self.lock.release()


def _helper_main(pool: _ThreadPool, queue: SimpleQueue[None], part: int) -> None:
    help = driver()[1]
    while help is not None:
        queue.get()
        help(pool.address, part)


_pool = _ThreadPool()


def _after_fork() -> None:
    global _pool
    _pool = _ThreadPool()  # the threads stayed in the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
