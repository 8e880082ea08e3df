"""A recorded run, which replays its kernel calls without Python for inputs of the same shapes."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxbridge.runtime.executor.kernels.array_layout import Array, address
from onnxbridge.runtime.executor.kernels.run import call_recorder
from onnxbridge.runtime.executor.kernels.run.call_table import Call
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table

if TYPE_CHECKING:
    from onnxbridge.hub.io.resource_limits import Budget

Patch = tuple[int, int, int]  # a cell of the table, the slot of an array that differs between runs, the offset in it


class CallSequence:
    """Consecutive kernel calls, and which of their arguments point into which array."""

    __slots__ = ("calls", "frees", "patches", "table")

    def __init__(self, calls: list[Call], patches: list[Patch], frees: Sequence[int] = ()) -> None:
        self.calls, self.patches, self.frees, self.table = calls, patches, frees, Table(calls)


class PythonStep:
    """A step that Python runs each time, on a frame; `targets` are the slots that it fills."""

    __slots__ = ("frees", "run", "targets")

    def __init__(self, run: Callable[[list[Any], Any, Any], None], targets: Sequence[int]) -> None:
        self.run, self.targets = run, targets
        self.frees: list[int] = []


class Recording:
    """What `record` made of one run."""

    def __init__(self, frame: list[Any], outputs: tuple[int, ...]) -> None:
        self.lock = threading.Lock()
        self.frame = frame
        self.outputs = outputs
        self.items: list[CallSequence | PythonStep] = []
        self.all_native = True  # no step is run by Python
        self.shapes: dict[int, Any] = {}
        self.recorder = call_recorder.CallRecorder()

    def replay(self, inputs: Mapping[int, Any], budget: Budget, adapt: Any) -> tuple[Any, ...] | None:
        """The outputs for inputs of the same kind; None if a step's result has another shape than when it was recorded."""
        frame = self.frame.copy()
        for slot, value in inputs.items():
            frame[slot] = value
        timed = budget.limits.seconds is not None
        for item in self.items:
            if timed:
                budget.check_time()
            if isinstance(item, CallSequence):
                for cell, slot, distance in item.patches:
                    item.table.cells[cell] = frame[slot].__array_interface__["data"][0] + distance
                item.table.run()
            else:
                item.run(frame, budget, adapt)
                for slot in item.targets:
                    if slot > 0 and kind(frame[slot]) != self.shapes[slot]:
                        return None
            for slot in item.frees:
                frame[slot] = None
        return tuple(frame[slot] for slot in self.outputs)


@contextlib.contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress NumPy's warnings: the standard defines the results that they are about."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is NaN, as the standard has it
        yield


def kinds(inputs: Mapping[int, Any]) -> tuple[Any, ...] | None:
    """What a recording depends on; None if some input is not an array."""
    if any(not isinstance(v, np.ndarray) or v.dtype.hasobject for v in inputs.values()):
        return None
    return tuple((slot, kind(v)) for slot, v in inputs.items())


def kind(value: Any) -> Any:
    """The properties of an array that calls recorded with it depend on."""
    return (value.dtype, value.shape, value.strides) if isinstance(value, np.ndarray) else type(value)


def disjoint(inputs: Mapping[int, Any]) -> bool:
    """Whether no two arrays share memory, so that an address identifies one of them."""
    spans = sorted(extent(v) for v in inputs.values())
    return all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def extent(array: Array) -> tuple[int, int]:
    """The first address of an array's memory, and the one after its last."""
    low = high = address(array)
    for size, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (size - 1) * step
        else:
            high += (size - 1) * step
    return (low, high + array.itemsize) if array.size else (low, low)


def owned(results: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Results that the caller may write into: copies of views, and of arrays that are among `others`."""
    taken = {id(v) for v in others}
    return [_own(r, taken) for r in results]


def _own(result: Any, others: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, others) for item in result]
    if not isinstance(result, np.ndarray) or (result.flags.owndata and result.flags.writeable and id(result) not in others):
        return result
    return result.copy()
