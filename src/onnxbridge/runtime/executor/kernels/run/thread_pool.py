"""Running lists of calls: alone, or with a few threads that take pieces of each call until there are none left.

The helpers sleep between runs. While a run goes on they look for the next call that comes in pieces; one that comes late, or is
held up by the system, takes fewer of them.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxbridge.runtime.executor.kernels.compile.kernel import Loop

_EACH = 3  # shares of a call for a thread, so that one that is held up leaves some to the others


class Call:
    """A kernel and its arguments, which are changed where an array lies elsewhere the next time; `units` are its pieces."""

    __slots__ = ("arguments", "loop", "units")

    def __init__(self, loop: Loop, arguments: list[Any], units: int) -> None:
        self.loop, self.arguments, self.units = loop, arguments, units


@functools.cache
def threads() -> int:
    """How many threads share the work of a run: ONNXBRIDGE_THREADS, or as many as there are processors for this process."""
    given = os.environ.get("ONNXBRIDGE_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    with contextlib.suppress(AttributeError):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Work:
    """One call that several threads do."""

    def __init__(self, call: Call, many: int) -> None:
        self._function, self._arguments = call.loop.function, call.arguments[:-3]
        shares = min(call.units, _EACH * many)
        self._bounds = [call.units * k // shares for k in range(shares + 1)]
        self._next = itertools.count()
        self._done: list[int] = []
        self.failed: BaseException | None = None

    def help(self, part: int) -> None:
        """Take shares until there are none left."""
        while (k := next(self._next)) < len(self._bounds) - 1:
            try:
                self._function(*self._arguments, self._bounds[k], self._bounds[k + 1], part)
            except BaseException as e:  # told by whoever leads
                self.failed = e
            finally:
                self._done.append(k)

    def wait(self) -> None:
        """Return when the last share is done."""
        while len(self._done) < len(self._bounds) - 1:
            time.sleep(0)
        if self.failed is not None:
            raise self.failed


class _Run:
    """What the helpers see of a list of calls that is being run."""

    def __init__(self) -> None:
        self.open = True
        self.work: _Work | None = None


class _Crew:
    """The threads that help."""

    def __init__(self) -> None:
        self.busy = threading.Lock()
        self._queues: list[SimpleQueue[_Run]] = []

    def called(self, helpers: int) -> _Run:
        """Wake the helpers for a run."""
        while len(self._queues) < helpers:
            queue: SimpleQueue[_Run] = SimpleQueue()
            self._queues.append(queue)
            threading.Thread(target=_help, args=(queue, len(self._queues)), daemon=True, name="onnxbridge").start()
        run = _Run()
        for queue in self._queues[:helpers]:
            queue.put(run)
        return run


def _help(queue: SimpleQueue[_Run], part: int) -> None:
    while True:
        run, before = queue.get(), None
        while run.open:
            work = run.work
            if work is before or work is None:
                time.sleep(0)
            else:
                work.help(part)
                before = work


_crew = _Crew()


def _forked() -> None:
    global _crew
    _crew = _Crew()  # the threads stayed in the other process


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def run(calls: Sequence[Call]) -> None:
    """Run a list of calls, with the helpers if there is something to share and nobody else uses them."""
    crew, many = _crew, threads()
    if many == 1 or all(call.units == 1 for call in calls) or not crew.busy.acquire(blocking=False):
        for call in calls:
            call.loop.function(*call.arguments)
        return
    try:
        opened = crew.called(many - 1)
        try:
            for call in calls:
                if call.units == 1:
                    call.loop.function(*call.arguments)
                else:
                    opened.work = work = _Work(call, many)
                    work.help(0)
                    work.wait()
        finally:
            opened.open = False
    finally:
        crew.busy.release()
