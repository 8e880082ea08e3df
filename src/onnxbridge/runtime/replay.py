"""A run recorded once and played again: for inputs of the same shapes the calls of machine code follow each other without Python.

Recording runs the plan as `execute` does, with memory that stays the recording's own. A step whose results are known from the
shapes alone is not run again; one that only looks differently at memory of the recording needs nothing; one that is machine code
throughout becomes entries in a table of calls; any other is run by Python each time, and the addresses of what it makes
are put into the calls that read it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxbridge.hub.limits import Budget
from onnxbridge.runtime.native import drive, tape
from onnxbridge.runtime.plan import NOTHING, Plan, Step, perform

Array = np.ndarray[Any, Any]

Seen = Callable[[Step, list[Any], list[Any], str], None]

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Slice", "Split", "Gather"})
_SHAPES = frozenset({"Shape", "Size"})
_CHANCE = ("Random", "Multinomial", "Bernoulli", "Dropout")


@dataclass(slots=True)
class _Calls:
    """Calls of machine code in a row: their arguments one after the other, the table, and which argument is whose address."""

    rows: list[tuple[int, bytes, int]] = field(default_factory=list)
    patches: list[tuple[int, int, int]] = field(default_factory=list)  # argument, slot, distance from its address
    frees: list[int] = field(default_factory=list)
    arguments: Any = None
    table: Any = None
    state: Any = None

    def closed(self) -> _Calls:
        """With its table made."""
        self.arguments = np.frombuffer(b"".join(packed for _, packed, _ in self.rows), np.int64).copy()
        base = _address(self.arguments)
        places = itertools.accumulate((len(packed) for _, packed, _ in self.rows), initial=base)
        rows = [(function, place, units) for (function, _, units), place in zip(self.rows, places, strict=False)]
        self.table = np.array(rows, np.int64)
        if drive.threads() > 1 and any(units > 1 for _, _, units in self.rows):
            self.state = np.zeros(len(self.rows) * drive.STATE, np.int64)
        return self


@dataclass(slots=True)
class _Aside:
    """A step that Python runs each time."""

    step: Step
    frees: list[int] = field(default_factory=list)


class Recording:
    """What `record` made of one run."""

    def __init__(self, frame: list[Any], outputs: tuple[int, ...]) -> None:
        self.busy = threading.Lock()
        self.frame = frame
        self.outputs = outputs
        self.items: list[_Calls | _Aside] = []
        self.quiet = True  # no step is run by Python
        self.shapes: dict[int, tuple[Any, ...]] = {}
        self.tape = tape.Tape()

    def play(self, inputs: dict[int, Any], budget: Budget, adapt: Any) -> tuple[Any, ...] | None:
        """The outputs for other inputs of the same kind; None if a step gave another shape than when it was recorded."""
        frame = self.frame.copy()
        for slot, value in inputs.items():
            frame[slot] = value
        timed = budget.limits.seconds is not None
        for item in self.items:
            if timed:
                budget.tick()
            if isinstance(item, _Calls):
                arguments = item.arguments
                for k, slot, distance in item.patches:
                    arguments[k] = frame[slot].__array_interface__["data"][0] + distance
                drive.run(_address(item.table), len(item.table), item.state)
            else:
                perform(item.step, [frame[s] for s in item.step.sources], frame, budget, adapt)
                for slot in item.step.targets:
                    if slot > 0 and _kind(frame[slot]) != self.shapes[slot]:
                        return None
            for slot in item.frees:
                frame[slot] = None
        return tuple(frame[slot] for slot in self.outputs)


def kinds(inputs: dict[int, Any]) -> tuple[Any, ...] | None:
    """What a recording depends on; None if there is an input that is no array."""
    if any(not isinstance(v, np.ndarray) or v.dtype.hasobject for v in inputs.values()):
        return None
    return tuple((slot, _kind(v)) for slot, v in inputs.items())


def _kind(value: Any) -> Any:
    return (value.dtype, value.shape, value.strides) if isinstance(value, np.ndarray) else type(value)


def _address(array: Array) -> int:
    where: int = array.__array_interface__["data"][0]
    return where


def worthwhile(plan: Plan) -> bool:
    """Whether there is any machine code in a plan, without which a recording gains nothing."""
    return any(step.native for step in plan.steps)


def record(
    plan: Plan, frame: list[Any], inputs: Sequence[int], budget: Budget, adapt: Any, seen: Seen | None = None
) -> tuple[tuple[Any, ...], Recording]:
    """Run a plan on a frame that has its inputs in their slots; gives the outputs and the recording.

    `seen` is told of each step: its arguments, its results, and how it will run when the recording is played.
    """
    made = Recording([None] * len(frame), plan.outputs)
    notes, here = made.tape, _Spans()
    constant = {i for i, value in enumerate(plan.frame) if value is not None} | {NOTHING}
    fixed = set(constant)  # known from the shapes of the inputs alone
    foreign = {slot for slot in inputs if slot not in constant}  # in memory that is not the recording's
    wanted = set(plan.outputs)
    made.frame = plan.frame.copy()
    tape.record(notes)
    try:
        for step, dead in zip(plan.steps, plan.frees, strict=True):
            notes.calls, notes.beside = [], False
            read = set(step.reads())
            args = [frame[i] for i in step.sources]
            perform(step, list(args), frame, budget, adapt)
            here.add(notes.buffers)
            targets = [t for t in step.targets if t > 0]
            known = not step.bodies and not step.op.startswith(_CHANCE)
            runs = "once"
            if known and (read <= fixed or step.op in _SHAPES):
                fixed.update(targets)
                for t in targets:
                    made.frame[t] = frame[t]
            elif step.native and notes.calls and not notes.beside and all(here.holds(frame[t]) for t in targets):
                runs = "machine code"
                _add(made, notes.calls, [(s, frame[s]) for s in step.sources if s in foreign and frame[s] is not None])
            elif _looks(step, frame, read, fixed, foreign):
                pass
            else:
                runs = "Python"
                made.items.append(_Aside(step))
                made.quiet = False
                foreign.update(targets)
                made.shapes.update((t, _kind(frame[t])) for t in targets)
                for slot in read - foreign:
                    if made.frame[slot] is None:
                        made.frame[slot] = here.view(frame[slot])
            if seen is not None:
                seen(step, args, [frame[t] for t in targets], runs)
            del args
            for t in targets:
                if t in wanted and t not in foreign and t not in fixed:
                    made.frame[t] = here.view(frame[t])
            if made.items:
                made.items[-1].frees += [slot for slot in dead if slot in foreign and slot not in wanted]
            for i in dead:
                frame[i] = None
    finally:
        tape.record(None)
    made.items = [item.closed() if isinstance(item, _Calls) else item for item in made.items]
    return tuple(frame[i] for i in plan.outputs), made


def _add(made: Recording, calls: list[tuple[int, bytes, int]], foreign: list[tuple[int, Any]]) -> None:
    """Append calls to the table at the end, and note which of their arguments lie in arrays that come anew each time."""
    if not made.items or not isinstance(made.items[-1], _Calls):
        made.items.append(_Calls())
    group = made.items[-1]
    assert isinstance(group, _Calls)
    spans = [(slot, _address(a), *_extent(a)) for slot, a in foreign]
    at = sum(len(packed) for _, packed, _ in group.rows) // 8
    for row in calls:
        group.rows.append(row)
        for k, value in enumerate(np.frombuffer(row[1], np.int64).tolist()):
            for slot, start, low, high in spans:
                if low <= value < high:
                    group.patches.append((at + k, slot, value - start))
                    break
        at += len(row[1]) // 8


def _extent(a: Array) -> tuple[int, int]:
    low, high = np.lib.array_utils.byte_bounds(a)
    return low, high


def _looks(step: Step, frame: list[Any], read: set[int], fixed: set[int], foreign: set[int]) -> bool:
    """Whether a step's results are the memory of its first input seen in a way that the shapes determine."""
    data = step.sources[0] if step.sources else NOTHING
    if step.op not in _VIEWS or data in foreign or data in fixed or not read - {data} <= fixed:
        return False
    source = frame[data]
    low, high = _extent(source) if isinstance(source, np.ndarray) and source.size else (0, 0)
    results = [frame[t] for t in step.targets if t > 0]
    return all(isinstance(r, np.ndarray) and r.size and low <= _address(r) < high for r in results)


class _Spans:
    """The memory of a recording."""

    def __init__(self) -> None:
        self._buffers: list[tuple[int, int, Array]] = []

    def add(self, buffers: list[Array]) -> None:
        for buffer in buffers[len(self._buffers) :]:
            where = _address(buffer)
            self._buffers.append((where, where + buffer.size, buffer))

    def _find(self, where: int) -> tuple[int, Array] | None:
        return next(((low, buffer) for low, high, buffer in self._buffers if low <= where < high), None)

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.ndarray) and (not value.size or self._find(_address(value)) is not None)

    def view(self, value: Any) -> Any:
        """An array of the recording's memory that does not keep it from being used again."""
        found = self._find(_address(value)) if isinstance(value, np.ndarray) and value.size else None
        if found is None:
            return value
        low, buffer = found
        return np.ndarray(value.shape, value.dtype, buffer, _address(value) - low, value.strides)
