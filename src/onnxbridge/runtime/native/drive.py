"""Running lists of calls: alone, or by several threads that take pieces of each call until there are none left.

A list is a table of (function, arguments, pieces). A thread that comes late or is held up by the system takes fewer pieces;
nobody waits for it unless it is in the middle of one. The leader takes pieces from the front, the others from the back, so
that from call to call each finds in its own cache what it worked on before.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxbridge.runtime.native.placed import found

if TYPE_CHECKING:
    from queue import SimpleQueue

Array = np.ndarray[Any, Any]

COLUMNS = 3  # function, arguments, pieces
STATE = 16  # int64s between the counters of two calls, or of two threads: two cache lines
_MASK = 128  # bytes of a set of processors

@functools.cache
def threads() -> int:
    """How many threads share the work of a run: ONNXBRIDGE_THREADS, or as many as there are processors for this process."""
    given = os.environ.get("ONNXBRIDGE_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _yield() -> int:
    """The system's function that lets another thread run."""
    with contextlib.suppress(AttributeError):
        return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0
    return ctypes.cast(ctypes.WinDLL("kernel32").SwitchToThread, ctypes.c_void_p).value or 0  # type: ignore[attr-defined]


def addresses() -> tuple[int, ...]:
    """Where the functions of `sharing.NAMES` lie, which are made or loaded when they are first asked for."""
    global _addresses
    if not _addresses:
        from onnxbridge.runtime.native import sharing
        from onnxbridge.runtime.native.machine import assembled, kept, loaded, symbol, triple

        for name, address in _outer().items():
            symbol(name, address)
        text = sharing.text(triple().startswith("x86_64"), _placing())
        _addresses = tuple(loaded(kept("drive", text, lambda: assembled(text)), *sharing.NAMES))
    return _addresses


def _outer() -> dict[str, int]:
    return {"onnxbridge_yield": _yield()} | ({"onnxbridge_place": found("sched_setaffinity")} if _placing() else {})


_addresses: tuple[int, ...] = ()


@functools.cache
def _functions() -> tuple[Any, ...]:
    i, p = ctypes.c_int64, ctypes.c_void_p
    kinds = ((i, ctypes.c_char_p, i), (p, i), (p, i, p, p), (p, i, p, p, i, i))
    return tuple(ctypes.CFUNCTYPE(None, *kind)(place) for kind, place in zip(kinds, addresses(), strict=True))


@functools.cache
def pieces() -> Callable[[int, bytes, int], None]:
    """The function that runs all pieces of one call."""
    found: Callable[[int, bytes, int], None] = _functions()[0]
    return found


class _Crew:
    """The threads that help; they sleep until there is something to do."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.gate = np.zeros(STATE, np.int64)
        self.gates = [self.gate]  # a helper that comes late may look at an older one
        self.tickets = itertools.count(1)
        self.jobs: list[SimpleQueue[tuple[int, ...]]] = []
        self.helpers: list[threading.Thread] = []
        self.masks: list[Array] = []  # the leader's processor, and the others
        self.processor = -1

    def grow(self, helpers: int) -> None:
        if len(self.jobs) >= helpers:
            return
        while len(self.jobs) < helpers:
            from queue import SimpleQueue

            jobs: SimpleQueue[tuple[int, ...]] = SimpleQueue()
            self.jobs.append(jobs)
            self.helpers.append(threading.Thread(target=_help, args=(jobs,), daemon=True, name="onnxbridge"))
            self.helpers[-1].start()
        self.processor = -1
        self.gate = np.zeros(STATE * (helpers + 2), np.int64)
        self.gates.append(self.gate)

    def apart(self) -> None:
        """Keep the helpers off the processor of the thread that leads.

        Where other processes keep the rest busy, Linux would wake them on it, to wait until the leader's slice of time is over.
        """
        where = _processor()
        if where == self.processor:
            return
        self.processor, self.gate[1] = where, 0
        with contextlib.suppress(OSError):
            others = os.sched_getaffinity(0) - {where}
            for helper in self.helpers:
                if others and helper.native_id is not None:
                    os.sched_setaffinity(helper.native_id, others)
            if others and max(others | {where}) < 8 * _MASK:
                self.masks = [_mask({where}), _mask(others)]
                self.gate[2:4] = [m.__array_interface__["data"][0] for m in self.masks]
                self.gate[2 * STATE + 1 :: STATE] = [helper.native_id or 0 for helper in self.helpers]
                self.gate[1] = len(self.helpers)


def _mask(processors: set[int]) -> Array:
    """Processors as the system's functions take them."""
    bits = np.zeros(8 * _MASK, np.uint8)
    bits[list(processors)] = 1
    return np.packbits(bits, bitorder="little")


def _placing() -> bool:
    """Whether the system can put threads on processors."""
    return hasattr(os, "sched_setaffinity") and hasattr(threading, "get_native_id")


def _system() -> Callable[[], int]:
    """The system's function that tells on which processor a thread runs, or -1 always where threads cannot be put."""
    if hasattr(os, "sched_setaffinity"):
        with contextlib.suppress(AttributeError):
            return ctypes.PyDLL(None).sched_getcpu  # too quick to let go of Python's lock for it
    return lambda: -1


_processor = _system()


def _help(jobs: SimpleQueue[tuple[int, ...]]) -> None:
    follow = _functions()[3]
    while True:
        follow(*jobs.get())


_crew = _Crew()


def _forked() -> None:
    global _crew
    _crew = _Crew()  # the threads stayed in the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def spread(function: int, arguments: bytes, units: int) -> None:
    """Run one call by all threads."""
    given = np.frombuffer(arguments, np.int64)
    table = np.array([function, given.__array_interface__["data"][0], units], np.int64)
    run(table.__array_interface__["data"][0], 1, np.zeros(STATE, np.int64))


def run(table: int, count: int, state: Array | None) -> None:
    """Run a list of calls at an address, by all threads if there is room for their counters and nobody else uses them."""
    crew, many = _crew, threads()
    if state is None or many == 1 or not crew.busy.acquire(blocking=False):
        _functions()[1](table, count)
        return
    try:
        crew.grow(many - 1)
        crew.apart()
        state[:] = 0
        ticket = next(crew.tickets)
        gate, counters = crew.gate.__array_interface__["data"][0], state.__array_interface__["data"][0]
        crew.gate[0] = ticket
        for part in range(1, many):
            crew.jobs[part - 1].put((table, count, counters, gate, part, ticket))
        _functions()[2](table, count, counters, gate)
    finally:
        crew.busy.release()
