"""Running a list of calls many times over, where each time some of them look a step further: the trips of a loop."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from onnxbridge.runtime.executor.kernels.run import thread_pool
from onnxbridge.runtime.executor.kernels.run.thread_pool import Call

Move = tuple[Call, int, int]  # a call, which of its arguments, and what is added to it after each trip
Copy = tuple[int, int, int, int]  # from where, to where, how many bytes, and how much further they go the next time


def run(calls: Sequence[Call], moves: Sequence[Move], copies: Sequence[Copy], trips: int) -> None:
    """Run a list of calls `trips` times; after each time results are copied and arguments moved."""
    for trip in range(trips):
        thread_pool.run(calls)
        for source, target, size, further in copies:
            ctypes.memmove(target + trip * further, source, size)
        for call, k, step in moves:
            call.arguments[k] += step
