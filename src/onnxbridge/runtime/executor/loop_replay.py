"""Replay of loop bodies: a run is recorded when the sizes of the inputs repeat.

Where a whole body is kernel calls, its iterations run without Python: carried values are copied to where the next iteration
reads them, and the addresses of scanned arrays are advanced by a row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.runtime.executor.kernels.array_layout import Array, address
from onnxbridge.runtime.executor.kernels.compile.kernel import load_kernel
from onnxbridge.runtime.executor.kernels.run.call_table import ARGUMENTS, WIDTH, Call
from onnxbridge.runtime.executor.kernels.run.thread_pool import Table
from onnxbridge.runtime.executor.loop_spec import Iterations, LoopSpec
from onnxbridge.runtime.executor.plan import Plan, execute
from onnxbridge.runtime.executor.recorded_run import CallSequence, Recording, extent

_MAX_MISSES = 8  # consecutive runs of different sizes after which a body is not recorded any more
_TICKS = 256  # iterations after which a time limit is checked


class LoopReplay:
    """The recording of a body, and when to make one."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._recording: Recording | None = None
        self._known: Any = None
        self._last: Any = None
        self._misses = 0
        self._slots: list[int] = []

    @property
    def ready(self) -> bool:
        """Whether the whole body was recorded as kernel calls."""
        made = self._recording
        return made is not None and made.all_native and len(made.items) < 2

    def run(self, plan: Plan, frame: list[Any], budget: Budget) -> tuple[Any, ...]:
        """The outputs for a frame that has the inputs and the captured values."""
        slots = self._slots = self._slots or _input_slots(plan)
        found = _kinds(frame, slots) if self._misses < _MAX_MISSES else None
        if found is None or not self._busy.acquire(blocking=False):
            return execute(plan, frame, budget, None)
        try:
            if self._recording is not None and found == self._known:
                results = self._recording.replay({slot: frame[slot] for slot in slots}, budget, None)
                if results is not None:
                    self._misses = 0
                    return _own(results, frame, slots)
                self._misses, self._recording = _MAX_MISSES, None  # shapes depend on values
            elif found == self._last and (copies := _without_aliases(frame, slots)) is not None:
                return self._record(plan, copies, slots, found, budget)
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

    def run_iterations(self, plan: Plan, frame: list[Any], spec: LoopSpec, iterations: int, budget: Budget) -> Iterations | None:
        """Run up to `iterations` from this frame on without Python; None where the body does not allow it."""
        made, slots = self._recording, _input_slots(plan)
        if made is None or not self.ready or _kinds(frame, slots) != self._known:
            return None
        calls = made.items[0] if made.items else None
        if iterations < 1 or not self._busy.acquire(blocking=False):
            return None
        try:
            if calls is not None and not isinstance(calls, CallSequence):
                return None
            return _IterationRun(plan, made, calls, frame, spec).run(iterations, budget)
        finally:
            self._busy.release()


class _IterationRun:
    """One run of many iterations."""

    def __init__(self, plan: Plan, made: Recording, calls: CallSequence | None, frame: list[Any], spec: LoopSpec) -> None:
        self.plan, self.made, self.calls, self.frame, self.spec = plan, made, calls, frame.copy(), spec
        self.inputs = {slot: i for i, slot in enumerate(plan.inputs) if slot > 0}

    def run(self, iterations: int, budget: Budget) -> Iterations | None:
        plan, made, spec = self.plan, self.made, self.spec
        if not self._always_continues() or any(self.inputs.get(slot) == spec.counter for slot in self._read_slots()):
            return None
        copy = load_kernel("layout", "copy_bytes")
        fixed = {slot for slot in plan.outputs if slot not in self.inputs and made.frame[slot] is not None}
        buffers: dict[int, Array] = {}  # written between iterations, by the input
        carried: list[Call] = []
        for output, i in spec.carried.items():
            slot, to = plan.outputs[output], plan.inputs[i]
            if slot == to:
                continue
            found: Any = made.frame[slot] if slot in fixed else None
            before = self.frame[to] if to > 0 else found
            if found is None or not _copyable(found, before):
                return None
            buffers[i] = before.copy()
            carried.append(Call(copy, (address(found), address(buffers[i]), found.nbytes), 1))
            if to > 0:
                self.frame[to] = buffers[i]
        if budget.limits.seconds is not None:
            budget.check_time()
            iterations = min(iterations, _TICKS)
        scanned: list[Call] = []
        stacks = []
        for output in spec.scanned:
            slot = plan.outputs[output]
            i = self.inputs.get(slot, -1)
            source = self.frame[slot] if i >= 0 and i not in spec.scan_inputs else made.frame[slot] if slot in fixed else None
            if source is None or not source.flags.c_contiguous:
                return None
            budget.claim((spec.done + iterations, *source.shape), source.dtype)
            stacks.append(np.empty((iterations, *source.shape), source.dtype))
            scanned.append(Call(copy, (address(source), address(stacks[-1]), source.nbytes), 1))
        calls = [] if self.calls is None else self.calls.calls
        table = Table([*calls, *scanned, *carried])
        moves = [((len(calls) + k) * WIDTH + ARGUMENTS + 1, stack[0].nbytes) for k, stack in enumerate(stacks)]
        table.run(iterations, self._set_addresses(table) + moves)
        finals = {o: buffers[i] if i in buffers else self.frame[plan.inputs[i]] for o, i in spec.carried.items()}
        return Iterations(iterations, finals, stacks)

    def _always_continues(self) -> bool:
        """Whether the condition output is always true: it is the condition input, or a constant."""
        if self.spec.condition_output < 0:
            return True
        slot = self.plan.outputs[self.spec.condition_output]
        if slot in self.inputs:
            return self.inputs[slot] == self.spec.condition
        return self.plan.frame[slot] is not None and bool(self.plan.frame[slot])

    def _read_slots(self) -> set[int]:
        """The slots that kernel calls or outputs read."""
        called = () if self.calls is None else self.calls.patches
        return {*self.plan.outputs, *(slot for _, slot, _ in called)}

    def _set_addresses(self, table: Table) -> list[tuple[int, int]]:
        """Write the addresses of the first iteration into the table; returns the cells that advance."""
        moves: list[tuple[int, int]] = []
        if self.calls is None:
            return moves
        for cell, slot, distance in self.calls.patches:
            rows = self.spec.scan_inputs.get(self.inputs.get(slot, -1))
            if rows is None:
                table.cells[cell] = address(self.frame[slot]) + distance
            else:
                table.cells[cell] = address(rows) + self.spec.done * rows.strides[0] + distance
                moves.append((cell, rows.strides[0]))
        return moves


def _copyable(found: Array, before: Array) -> bool:
    """Whether one array can be copied over another."""
    return _kind(found) == _kind(before) and bool(found.flags.c_contiguous)


def _input_slots(plan: Plan) -> list[int]:
    return [slot for slot in plan.inputs if slot > 0] + [here for _, here in plan.captured]


def _kinds(frame: list[Any], slots: Sequence[int]) -> tuple[Any, ...] | None:
    values = [frame[slot] for slot in slots]
    known = all(isinstance(value, np.ndarray) and not value.dtype.hasobject for value in values)
    return tuple(map(_kind, values)) if known else None


def _kind(value: Array) -> Any:
    """The properties of an array that recorded calls depend on; strides only where it is not contiguous."""
    return value.dtype, value.shape, None if value.flags.c_contiguous else value.strides


def _without_aliases(frame: list[Any], slots: Sequence[int]) -> list[Any] | None:
    """The frame with copies of arrays that share memory; None if a copy would be of another kind."""
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
    """Results that the next run does not change: copies of views of the recording's memory."""
    given = {id(frame[slot]) for slot in slots}
    return tuple(r if r.flags.owndata or id(r) in given else r.copy() for r in results)
