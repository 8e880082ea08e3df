"""A recorded run, and playing it: for inputs of the same shapes the calls of machine code follow each other without Python."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxbridge.runtime.executor.kernels.run import call_recorder
from onnxbridge.runtime.executor.kernels.run.call_table import Call
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table

if TYPE_CHECKING:
    from onnxbridge.hub.io.resource_limits import Budget

Array = np.ndarray[Any, Any]
Patch = tuple[int, int, int]  # a cell of the table, the slot of an array that comes anew each time, the distance


class Calls:
    """Calls of machine code in a row, and which of their arguments is whose address."""

    __slots__ = ("calls", "frees", "patches", "table")

    def __init__(self, calls: list[Call], patches: list[Patch], frees: Sequence[int] = ()) -> None:
        self.calls, self.patches, self.frees, self.table = calls, patches, frees, Table(calls)


class Aside:
    """A step that Python runs each time, on a frame; `targets` are the slots that it fills."""

    __slots__ = ("frees", "run", "targets")

    def __init__(self, run: Callable[[list[Any], Any, Any], None], targets: Sequence[int]) -> None:
        self.run, self.targets = run, targets
        self.frees: list[int] = []


class Recording:
    """What `record` made of one run."""

    def __init__(self, frame: list[Any], outputs: tuple[int, ...]) -> None:
        self.busy = threading.Lock()
        self.frame = frame
        self.outputs = outputs
        self.items: list[Calls | Aside] = []
        self.quiet = True  # no step is run by Python
        self.shapes: dict[int, Any] = {}
        self.tape = call_recorder.Tape()

    def play(self, inputs: Mapping[int, Any], budget: Budget, adapt: Any) -> tuple[Any, ...] | None:
        """The outputs for other inputs of the same kind; None if a step gave another shape than when it was recorded."""
        frame = self.frame.copy()
        for slot, value in inputs.items():
            frame[slot] = value
        timed = budget.limits.seconds is not None
        for item in self.items:
            if timed:
                budget.tick()
            if isinstance(item, Calls):
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
def quieted() -> Iterator[None]:
    """Without NumPy's warnings: what they tell of is what the standard says."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is NaN, as the standard has it
        yield


def kinds(inputs: Mapping[int, Any]) -> tuple[Any, ...] | None:
    """What a recording depends on; None if there is an input that is no array."""
    if any(not isinstance(v, np.ndarray) or v.dtype.hasobject for v in inputs.values()):
        return None
    return tuple((slot, kind(v)) for slot, v in inputs.items())


def kind(value: Any) -> Any:
    """What must be the same of an array, so that calls recorded with it fit another."""
    return (value.dtype, value.shape, value.strides) if isinstance(value, np.ndarray) else type(value)


def apart(inputs: Mapping[int, Any]) -> bool:
    """Whether no two arrays look at the same memory, so that an address tells which one is meant."""
    spans = sorted(extent(v) for v in inputs.values())
    return all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def address(array: Array) -> int:
    """The address of an array's first element."""
    where: int = array.__array_interface__["data"][0]
    return where


def extent(array: Array) -> tuple[int, int]:
    """Where an array's memory begins and ends."""
    low = high = address(array)
    for size, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (size - 1) * step
        else:
            high += (size - 1) * step
    return (low, high + array.itemsize) if array.size else (low, low)


def owned(results: Iterable[Any], others: Iterable[Any]) -> list[Any]:
    """Results that the caller may write into: copies of what is a view, or one of these others."""
    taken = {id(v) for v in others}
    return [_own(r, taken) for r in results]


def _own(result: Any, others: set[int]) -> Any:
    if isinstance(result, list):
        return [_own(item, others) for item in result]
    if not isinstance(result, np.ndarray) or (result.flags.owndata and result.flags.writeable and id(result) not in others):
        return result
    return result.copy()
