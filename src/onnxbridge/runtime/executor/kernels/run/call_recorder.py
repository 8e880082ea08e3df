"""What a run notes down while it is recorded: the calls of machine code, the memory they use, and what Python does besides.

A recorded run can be played again (`replay.py`) on the same memory: every buffer that is taken while recording comes from the
recording's own store and is never given to anybody else.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnxbridge.runtime.executor.kernels.run.call_table import Call

Array = np.ndarray[Any, Any]


class Tape:
    """The notes of one recording."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.beside = False  # whether the present step does something that is not among the calls
        self.free: defaultdict[int, list[Array]] = defaultdict(list)
        self.buffers: list[Array] = []
        self.kept: list[Any] = []


class _Local(threading.local):
    tape: Tape | None = None


_local = _Local()


def recording() -> Tape | None:
    """The recording that this thread makes now."""
    return _local.tape


def record(tape: Tape | None) -> None:
    """Begin to write this thread's calls on a tape, or stop to do so."""
    _local.tape = tape


def beside() -> None:
    """Say that the present step does work that its calls of machine code do not show."""
    if _local.tape is not None:
        _local.tape.beside = True


def unrecorded(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule in NumPy as the way out of a native step."""

    def run(*args: Any, **attrs: Any) -> Any:
        beside()
        return rule(*args, **attrs)

    return run


def numbers(*values: int) -> tuple[Array, int]:
    """Whole numbers for a loop to read, and their address; the caller or the recording keeps them."""
    array = np.array(values, np.int64)
    if _local.tape is not None:
        _local.tape.kept.append(array)
    return array, array.__array_interface__["data"][0]


def keep(array: Array) -> Array:
    """Let an array that machine code reads live as long as the recording."""
    if _local.tape is not None:
        _local.tape.kept.append(array)
    return array
