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

from onnxbridge.runtime.native.machine import assembled, kept, loaded, symbol, triple

if TYPE_CHECKING:
    from queue import SimpleQueue

Array = np.ndarray[Any, Any]

COLUMNS = 3  # function, arguments, pieces
STATE = 16  # int64s between the counters of two calls: two cache lines

_TEXT = """
declare void @onnxbridge_yield()
declare void @PAUSE

define void @onnxbridge_pieces(i64 %function, ptr %arguments, i64 %units) {
entry:
 %f = inttoptr i64 %function to ptr
 %a = ptrtoint ptr %arguments to i64
 br label %loop
loop:
 %u = phi i64 [0, %entry], [%u1, %body]
 %more = icmp slt i64 %u, %units
 br i1 %more, label %body, label %done
body:
 call void %f(i64 %a, i64 %u, i64 0)
 %u1 = add i64 %u, 1
 br label %loop
done:
 ret void
}

define void @onnxbridge_alone(ptr %table, i64 %count) {
entry:
 br label %loop
loop:
 %i = phi i64 [0, %entry], [%i1, %body]
 %more = icmp slt i64 %i, %count
 br i1 %more, label %body, label %done
body:
 %o = mul i64 %i, 3
 %p0 = getelementptr i64, ptr %table, i64 %o
 %p1 = getelementptr i64, ptr %p0, i64 1
 %p2 = getelementptr i64, ptr %p0, i64 2
 %f = load i64, ptr %p0
 %a = load ptr, ptr %p1
 %n = load i64, ptr %p2
 call void @onnxbridge_pieces(i64 %f, ptr %a, i64 %n)
 %i1 = add i64 %i, 1
 br label %loop
done:
 ret void
}

define internal void @share(ptr %table, i64 %count, ptr %state, i64 %part) {
entry:
 %leads = icmp eq i64 %part, 0
 %one = select i1 %leads, i64 1, i64 4294967296
 br label %loop
loop:
 %i = phi i64 [0, %entry], [%i1, %next]
 %more = icmp slt i64 %i, %count
 br i1 %more, label %row, label %done
row:
 %o = mul i64 %i, 3
 %p0 = getelementptr i64, ptr %table, i64 %o
 %p1 = getelementptr i64, ptr %p0, i64 1
 %p2 = getelementptr i64, ptr %p0, i64 2
 %fi = load i64, ptr %p0
 %f = inttoptr i64 %fi to ptr
 %a = load i64, ptr %p1
 %n = load i64, ptr %p2
 %so = mul i64 %i, 16
 %claimed = getelementptr i64, ptr %state, i64 %so
 %finished = getelementptr i64, ptr %claimed, i64 8
 br label %claim
claim:
 %so_far = atomicrmw add ptr %claimed, i64 %one acq_rel
 %front = and i64 %so_far, 4294967295
 %back = lshr i64 %so_far, 32
 %left0 = sub i64 %n, %back
 %some = icmp slt i64 %front, %left0
 %last = sub i64 %left0, 1
 %u = select i1 %leads, i64 %front, i64 %last
 br i1 %some, label %work, label %wait
work:
 call void %f(i64 %a, i64 %u, i64 %part)
 %before = atomicrmw add ptr %finished, i64 1 release
 br label %claim
wait:
 %spins = phi i64 [0, %claim], [%spins1, %again], [0, %rest]
 %d = load atomic i64, ptr %finished acquire, align 8
 %over = icmp sge i64 %d, %n
 br i1 %over, label %next, label %again
again:
 call void @PAUSE
 %spins1 = add i64 %spins, 1
 %long = icmp sgt i64 %spins1, 2000
 br i1 %long, label %rest, label %wait
rest:
 call void @onnxbridge_yield()
 br label %wait
next:
 %i1 = add i64 %i, 1
 br label %loop
done:
 ret void
}

define void @onnxbridge_lead(ptr %table, i64 %count, ptr %state, ptr %gate) {
entry:
 call void @share(ptr %table, i64 %count, ptr %state, i64 0)
 %inside = getelementptr i64, ptr %gate, i64 8
 store atomic i64 0, ptr %gate seq_cst, align 8
 br label %wait
wait:
 %n = load atomic i64, ptr %inside seq_cst, align 8
 %none = icmp eq i64 %n, 0
 br i1 %none, label %done, label %again
again:
 call void @PAUSE
 br label %wait
done:
 ret void
}

define void @onnxbridge_follow(ptr %table, i64 %count, ptr %state, ptr %gate, i64 %part, i64 %ticket) {
entry:
 %inside = getelementptr i64, ptr %gate, i64 8
 %in = atomicrmw add ptr %inside, i64 1 seq_cst
 %open = load atomic i64, ptr %gate seq_cst, align 8
 %mine = icmp eq i64 %open, %ticket
 br i1 %mine, label %work, label %done
work:
 call void @share(ptr %table, i64 %count, ptr %state, i64 %part)
 br label %done
done:
 %out = atomicrmw sub ptr %inside, i64 1 seq_cst
 ret void
}
"""


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


@functools.cache
def _functions() -> tuple[Any, ...]:
    symbol("onnxbridge_yield", _yield())
    if triple().startswith("x86_64"):
        text = _TEXT.replace("@PAUSE", "@llvm.x86.sse2.pause()")
    else:
        text = _TEXT.replace("@PAUSE", "@onnxbridge_yield()").replace("declare void @onnxbridge_yield()\n", "", 1)
    names = ("onnxbridge_pieces", "onnxbridge_alone", "onnxbridge_lead", "onnxbridge_follow")
    places = loaded(kept("drive", text, lambda: assembled(text)), *names)
    i, p = ctypes.c_int64, ctypes.c_void_p
    kinds = ((i, ctypes.c_char_p, i), (p, i), (p, i, p, p), (p, i, p, p, i, i))
    return tuple(ctypes.CFUNCTYPE(None, *kind)(place) for kind, place in zip(kinds, places, strict=True))


@functools.cache
def pieces() -> Callable[[int, bytes, int], None]:
    """The function that runs all pieces of one call."""
    found: Callable[[int, bytes, int], None] = _functions()[0]
    return found


class _Crew:
    """The threads that help; they sleep until there is something to do."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self.gate = np.zeros(16, np.int64)
        self.tickets = itertools.count(1)
        self.jobs: list[SimpleQueue[tuple[int, ...]]] = []
        self.helpers: list[threading.Thread] = []
        self.processor = -1

    def grow(self, helpers: int) -> None:
        while len(self.jobs) < helpers:
            from queue import SimpleQueue

            jobs: SimpleQueue[tuple[int, ...]] = SimpleQueue()
            self.jobs.append(jobs)
            self.helpers.append(threading.Thread(target=_help, args=(jobs,), daemon=True, name="onnxbridge"))
            self.helpers[-1].start()
            self.processor = -1

    def apart(self) -> None:
        """Keep the helpers off the processor of the thread that leads.

        Where other processes keep the rest busy, Linux would wake them on it, to wait until the leader's slice of time is over.
        """
        where = _processor()
        if where == self.processor:
            return
        self.processor = where
        with contextlib.suppress(OSError):
            others = os.sched_getaffinity(0) - {where}
            for helper in self.helpers:
                if others and helper.native_id is not None:
                    os.sched_setaffinity(helper.native_id, others)


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
