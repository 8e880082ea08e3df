"""Running tables of calls: alone, or with a few threads that take shares of each call until there are none left.

The table is run by a compiled driver (`numba/driver.py`), which does not return to Python between calls. The threads that help
sleep between runs; one that comes late, or is held up by the system, takes fewer shares.
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

EACH = 3  # shares of a call for a thread, so that one that is held up leaves some to the others

class Table:
    """Calls that follow each other; arguments are changed in `cells` where an array lies elsewhere the next time."""

    __slots__ = ("_kernels", "cells", "shared")

    def __init__(self, calls: Sequence[Call]) -> None:
        self._kernels = [call.kernel for call in calls]
        rows = np.zeros((len(calls), WIDTH), np.int64)
        for row, (kernel, arguments, units) in zip(rows, calls, strict=True):
            row[:ARGUMENTS] = kernel.address, kernel.form, units
            row[ARGUMENTS : ARGUMENTS + len(arguments)] = arguments
        self.cells = rows.reshape(-1)
        self.shared = any(call.units > 1 for call in calls)

    def run(self, trips: int = 1, moves: Sequence[tuple[int, int]] = ()) -> None:
        """Run the calls so many times, each time moving some cells by some steps, with the helpers if nobody else has them."""
        lead, crew, many = driver()[0], _crew, threads()
        if lead is None:
            return self._interpreted(trips, moves)
        helpers = many - 1 if self.shared and many > 1 and crew.busy.acquire(blocking=False) else 0
        moved = np.array(moves, np.int64)
        cells, steps = (array.__array_interface__["data"][0] for array in (self.cells, moved))
        try:
            if helpers:
                crew.open(helpers)
            lead(crew.address, cells, len(self._kernels), EACH * many if helpers else 1, trips, steps, len(moves))
        finally:
            if helpers:
                crew.close()

    def _interpreted(self, trips: int, moves: Sequence[tuple[int, int]]) -> None:
        """The same where kernels are Python functions."""
        for _ in range(trips):
            for kernel, row in zip(self._kernels, self.cells.reshape(-1, WIDTH), strict=True):
                kernel.interpreted(row[ARGUMENTS:].tolist(), int(row[UNITS]))
            for cell, step in moves:
                self.cells[cell] += step


@functools.cache
def threads() -> int:
    """How many threads share the work of a run: ONNXBRIDGE_THREADS, or as many as there are processors for this process."""
    given = os.environ.get("ONNXBRIDGE_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def driver() -> tuple[Callable[..., None] | None, Callable[..., None] | None]:
    """The driver's functions for who leads and for who helps, which run without Python's lock; None where kernels are Python."""
    from onnxbridge.runtime.executor.kernels.compile import jit
    from onnxbridge.runtime.executor.kernels.numba.driver import help, lead

    if not jit.COMPILED:
        return None, None
    return jit.compiled(lead, "i" * 7).ctypes, jit.compiled(help, "ii").ctypes


class _Crew:
    """The threads that help."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self._state = np.zeros(STATE // 8, np.int64)
        self.address: int = self._state.__array_interface__["data"][0]
        self._queues: list[SimpleQueue[None]] = []

    def open(self, helpers: int) -> None:
        """Wake the helpers for a run."""
        while len(self._queues) < helpers:
            queue: SimpleQueue[None] = SimpleQueue()
            self._queues.append(queue)
            arguments = (self, queue, len(self._queues))
            threading.Thread(target=_help, args=arguments, daemon=True, name="onnxbridge").start()
        self._state[OPEN // 8] = 1
        for queue in self._queues[:helpers]:
            queue.put(None)

    def close(self) -> None:
        """Let the helpers sleep, and others have them."""
        self._state[OPEN // 8] = 0
        self.busy.release()


def _help(crew: _Crew, queue: SimpleQueue[None], part: int) -> None:
    help = driver()[1]
    while help is not None:
        queue.get()
        help(crew.address, part)


_crew = _Crew()


def _forked() -> None:
    global _crew
    _crew = _Crew()  # the threads stayed in the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
