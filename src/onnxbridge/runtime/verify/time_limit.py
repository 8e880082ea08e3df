"""A limit on the time that models may take to run, which no framework has of its own."""

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
"""How long a verification may take unless told otherwise."""

_abandoned: list[threading.Thread] = []


class _Abandoned(BaseException):
    """Raised inside work that took too long, which ends it where Python code comes by."""


def within(seconds: float | None, work: Callable[[], Result], describe: Callable[[], str], way_out: str) -> Result:
    """The result of `work`, which runs in a thread of its own.

    `describe` says what it was doing when the time was over, `way_out` what the user can do then.

    Work that takes too long is abandoned: it ends at its next line of Python. A framework's native code cannot be interrupted,
    and goes on until it returns or the process ends.

    Raises:
        LimitError: if it has not finished after so many seconds.
    """
    if seconds is None:
        return work()
    results: list[Result] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()  # NumPy's error state, for one, is kept there

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
        # what is silenced while a framework works is silenced for all threads
        (sys.stdout, sys.stderr), logging.root.manager.disable = streams, level
        _abandoned.append(thread)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_Abandoned))
        raise LimitError(f"{describe()} did not finish within {seconds:g} seconds; {way_out}")
    if errors:
        raise errors[0]
    return results[0]


def still_running() -> bool:
    """Whether work that was abandoned goes on, so that this process cannot end in the usual way."""
    return any(thread.is_alive() for thread in _abandoned)
