"""Subgraphs that run again and again: recorded when the sizes of what they are given repeat, and played.

Where all of a body is machine code its trips follow each other without Python: what it carries is copied to where the next trip
reads it, what it scans is looked at a row further each time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.runtime.executor.kernels.compile.kernel import loop
from onnxbridge.runtime.executor.kernels.run.call_table import ARGUMENTS, WIDTH, Call
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table
from onnxbridge.runtime.executor.loop_spec import Course, Trips
from onnxbridge.runtime.executor.plan import Plan, execute
from onnxbridge.runtime.executor.recorded_run import Array, Calls, Recording, address, extent

_MISSES = 8  # sizes that differ one after the other until a body is taken to be one whose sizes never repeat
_TICKS = 256  # trips after which the time is looked at where it is limited


class Again:
    """What is known of a body that ran."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._recording: Recording | None = None
        self._known: Any = None
        self._last: Any = None
        self._misses = 0
        self._slots: list[int] = []

    @property
    def ready(self) -> bool:
        """Whether all of the body is machine code that was recorded."""
        made = self._recording
        return made is not None and made.quiet and len(made.items) < 2

    def run(self, plan: Plan, frame: list[Any], budget: Budget) -> tuple[Any, ...]:
        """The outputs for a frame that has the inputs and what is captured."""
        slots = self._slots = self._slots or _given(plan)
        found = _kinds(frame, slots) if self._misses < _MISSES else None
        if found is None or not self._busy.acquire(blocking=False):
            return execute(plan, frame, budget, None)
        try:
            if self._recording is not None and found == self._known:
                results = self._recording.play({slot: frame[slot] for slot in slots}, budget, None)
                if results is not None:
                    self._misses = 0
                    return _own(results, frame, slots)
                self._misses, self._recording = _MISSES, None  # sizes that hang on values
            elif found == self._last and (apart := _apart(frame, slots)) is not None:
                return self._record(plan, apart, slots, found, budget)
            else:
                self._misses += found != self._last
                self._last = found
        finally:
            self._busy.release()
        return execute(plan, frame, budget, None)

    def _record(self, plan: Plan, frame: list[Any], slots: Sequence[int], found: Any, budget: Budget) -> tuple[Any, ...]:
        from onnxbridge.runtime.executor.record_run import record

        self._recording = None
        results, made = record(plan, frame, slots, budget, None)
        self._recording, self._known, self._misses = made, found, 0
        return _own(results, frame, slots)

    def many(self, plan: Plan, frame: list[Any], course: Course, trips: int, budget: Budget) -> Trips | None:
        """Up to so many trips from this frame on, without Python; None where the body is not known to allow it."""
        made, slots = self._recording, _given(plan)
        if made is None or not self.ready or _kinds(frame, slots) != self._known:
            return None
        calls = made.items[0] if made.items else None
        if trips < 1 or not self._busy.acquire(blocking=False):
            return None
        try:
            if calls is not None and not isinstance(calls, Calls):
                return None
            return _Course(plan, made, calls, frame, course).go(trips, budget)
        finally:
            self._busy.release()


class _Course:
    """One go of many trips."""

    def __init__(self, plan: Plan, made: Recording, calls: Calls | None, frame: list[Any], course: Course) -> None:
        self.plan, self.made, self.calls, self.frame, self.course = plan, made, calls, frame.copy(), course
        self.inputs = {slot: i for i, slot in enumerate(plan.inputs) if slot > 0}

    def go(self, trips: int, budget: Budget) -> Trips | None:
        plan, made, course = self.plan, self.made, self.course
        if not self._goes_on() or any(self.inputs.get(slot) == course.counter for slot in self._read()):
            return None
        copy = loop("layout", "moved")
        fixed = {slot for slot in plan.outputs if slot not in self.inputs and made.frame[slot] is not None}
        buffers: dict[int, Array] = {}  # what is written between trips, by the input
        carried: list[Call] = []
        for output, i in course.carried.items():
            slot, to = plan.outputs[output], plan.inputs[i]
            if slot == to:
                continue
            found: Any = made.frame[slot] if slot in fixed else None
            before = self.frame[to] if to > 0 else found
            if found is None or not _alike(found, before):
                return None
            buffers[i] = before.copy()
            carried.append(Call(copy, (address(found), address(buffers[i]), found.nbytes), 1))
            if to > 0:
                self.frame[to] = buffers[i]
        if budget.limits.seconds is not None:
            budget.tick()
            trips = min(trips, _TICKS)
        scanned: list[Call] = []
        stacks = []
        for output in course.scanned:
            slot = plan.outputs[output]
            i = self.inputs.get(slot, -1)
            source = self.frame[slot] if i >= 0 and i not in course.rows else made.frame[slot] if slot in fixed else None
            if source is None or not source.flags.c_contiguous:
                return None
            budget.claim((course.before + trips, *source.shape), source.dtype)
            stacks.append(np.empty((trips, *source.shape), source.dtype))
            scanned.append(Call(copy, (address(source), address(stacks[-1]), source.nbytes), 1))
        calls = [] if self.calls is None else self.calls.calls
        table = Table([*calls, *scanned, *carried])
        moves = [((len(calls) + k) * WIDTH + ARGUMENTS + 1, stack[0].nbytes) for k, stack in enumerate(stacks)]
        table.run(trips, self._placed(table) + moves)
        finals = {o: buffers[i] if i in buffers else self.frame[plan.inputs[i]] for o, i in course.carried.items()}
        return Trips(trips, finals, stacks)

    def _goes_on(self) -> bool:
        """Whether the output that says so can only say yes: it is the input that does, or a constant."""
        if self.course.flag < 0:
            return True
        slot = self.plan.outputs[self.course.flag]
        if slot in self.inputs:
            return self.inputs[slot] == self.course.going
        return self.plan.frame[slot] is not None and bool(self.plan.frame[slot])

    def _read(self) -> set[int]:
        """The slots that machine code or outputs read."""
        called = () if self.calls is None else self.calls.patches
        return {*self.plan.outputs, *(slot for _, slot, _ in called)}

    def _placed(self, table: Table) -> list[tuple[int, int]]:
        """Put the addresses of the first trip in their places; gives those that move."""
        moves: list[tuple[int, int]] = []
        if self.calls is None:
            return moves
        for cell, slot, distance in self.calls.patches:
            rows = self.course.rows.get(self.inputs.get(slot, -1))
            if rows is None:
                table.cells[cell] = address(self.frame[slot]) + distance
            else:
                table.cells[cell] = address(rows) + self.course.before * rows.strides[0] + distance
                moves.append((cell, rows.strides[0]))
        return moves


def _alike(found: Array, before: Array) -> bool:
    """Whether one array can be copied to where another one was."""
    return _kind(found) == _kind(before) and bool(found.flags.c_contiguous)


def _given(plan: Plan) -> list[int]:
    return [slot for slot in plan.inputs if slot > 0] + [here for _, here in plan.captured]


def _kinds(frame: list[Any], slots: Sequence[int]) -> tuple[Any, ...] | None:
    found = []
    for slot in slots:
        value = frame[slot]
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return None
        found.append((value.dtype, value.shape, None if value.flags.c_contiguous else value.strides))
    return tuple(found)


def _kind(value: Array) -> Any:
    """What must be the same of an array so that calls recorded with it fit another: how far apart what is alone lies does not."""
    return value.dtype, value.shape, None if value.flags.c_contiguous else value.strides


def _apart(frame: list[Any], slots: Sequence[int]) -> list[Any] | None:
    """The frame with copies where arrays look at the same memory; None if a copy would be of another kind."""
    found = frame.copy()
    taken: list[tuple[int, int]] = []
    for slot in slots:
        low, high = extent(found[slot])
        if any(low < end and begin < high for begin, end in taken):
            copy = found[slot].copy(order="K")
            if _kind(copy) != _kind(found[slot]):
                return None
            found[slot] = copy
            low, high = extent(copy)
        taken.append((low, high))
    return found


def _own(results: Sequence[Any], frame: list[Any], slots: Sequence[int]) -> tuple[Any, ...]:
    """Results that stay what they are when the body runs again: copies of what looks at a recording's memory."""
    given = {id(frame[slot]) for slot in slots}
    return tuple(r if r.flags.owndata or id(r) in given else r.copy() for r in results)
