"""Records a run: the kernel calls, the memory they use, and whether Python does other work.

A recorded run can be replayed (`recorded_run.py`) on the same memory: buffers that are allocated while recording belong to the
recording alone.
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


class CallRecorder:
    """What is recorded of one run."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.incomplete = False  # whether the current step does work besides the calls
        self.free: defaultdict[int, list[Array]] = defaultdict(list)
        self.buffers: list[Array] = []
        self.retained: list[Any] = []


class _Local(threading.local):
    recorder: CallRecorder | None = None


_local = _Local()


def active_recorder() -> CallRecorder | None:
    """This thread's recorder, None when nothing is recorded."""
    return _local.recorder


def activate(recorder: CallRecorder | None) -> None:
    """Set this thread's recorder, None to stop recording."""
    _local.recorder = recorder


def mark_incomplete() -> None:
    """Mark the current step as one that does more than its kernel calls."""
    if _local.recorder is not None:
        _local.recorder.incomplete = True


def as_fallback(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy rule as the fallback of a kernel."""

    def run(*args: Any, **attrs: Any) -> Any:
        mark_incomplete()
        return rule(*args, **attrs)

    return run


def int64_array(*values: int) -> tuple[Array, int]:
    """An array of integers for a kernel, and its address; the caller or the recording keeps it alive."""
    array = np.array(values, np.int64)
    if _local.recorder is not None:
        _local.recorder.retained.append(array)
    return array, array.__array_interface__["data"][0]


def retain(array: Array) -> Array:
    """Keep an array that kernels read alive as long as the recording."""
    if _local.recorder is not None:
        _local.recorder.retained.append(array)
    return array
