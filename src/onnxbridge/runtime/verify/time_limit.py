"""A limit on the time that a verification may take: frameworks have none."""

from __future__ import annotations

import contextvars
import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from onnxbridge.errors import LimitError

Result = TypeVar("Result")
SECONDS = 600.0
"""How long a verification may take by default."""

_abandoned: list[threading.Thread] = []


class _Abandoned(BaseException):
    """Raised in the thread of work that took too long, which ends at its next line of Python."""


def within(seconds: float | None, work: Callable[[], Result], describe: Callable[[], str], way_out: str) -> Result:
    """The result of `work`, which runs in a thread of its own.

    Work that takes too long is abandoned: it ends at its next line of Python. Native code of a framework cannot be interrupted
    and runs until it returns or the process ends.

    Args:
        describe: what the work was doing when the time was over, for the message.
        way_out: what the user can do, for the message.

    Raises:
        LimitError: if the work has not finished after `seconds`.
    """
    if seconds is None:
        return work()
    results: list[Result] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()  # NumPy's error state, for example, is a context variable

    def run() -> None:
        try:
            results.append(context.run(work))
        except BaseException as e:
            errors.append(e)

    streams, level = (sys.stdout, sys.stderr), logging.root.manager.disable
    thread = threading.Thread(target=run, name="onnxbridge", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        # the abandoned work may have silenced these for all threads
        (sys.stdout, sys.stderr), logging.root.manager.disable = streams, level
        _abandoned.append(thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Abandoned))
        raise LimitError(f"{describe()} did not finish within {seconds:g} seconds; {way_out}")
    if errors:
        raise errors[0]
    return results[0]


def still_running() -> bool:
    """Whether abandoned work still runs, so that the process cannot exit normally."""
    return any(thread.is_alive() for thread in _abandoned)
