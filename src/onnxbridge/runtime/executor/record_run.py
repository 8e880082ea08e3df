"""Recording a run, so that it can be played again (`recording.py`) for inputs of the same shapes.

Recording runs the plan as `execute` does, with memory that stays the recording's own. A step whose results are known from the
shapes alone is not run again; one that only looks differently at memory of the recording, or of an input, needs nothing; one
that is machine code throughout becomes entries in a list of calls; any other is run by Python each time, and the addresses
of what it makes are put into the calls that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.runtime.executor.kernels.run import call_recorder
from onnxbridge.runtime.executor.kernels.run.call_table import ARGUMENTS, WIDTH, Call
from onnxbridge.runtime.executor.plan import NOTHING, Plan, Step, perform
from onnxbridge.runtime.executor.recorded_run import Array, Aside, Calls, Patch, Recording, address, extent, kind

Seen = Callable[[Step, list[Any], list[Any], str], None]



@dataclass(slots=True)
class _Row:
    """Calls that follow each other, while they are recorded."""

    calls: list[Call] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)

    def add(self, calls: list[Call], spans: list[tuple[int, int, int, int]]) -> None:
        """Append calls, and note which of their arguments lie in arrays that come anew each time: slot, address, extent."""
        for call in calls:
            for k, (letter, value) in enumerate(zip(call.kernel.signature, call.arguments, strict=False)):
                if letter != "p":
                    continue
                for slot, start, low, high in spans:
                    if low <= value < high:
                        self.patches.append((len(self.calls) * WIDTH + ARGUMENTS + k, slot, value - start))
                        break
            self.calls.append(call)


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
    given = {slot: address(frame[slot]) for slot in inputs if slot not in constant}
    foreign = set(given)  # in memory that is not the recording's
    seen_as: dict[int, tuple[int, Step]] = {}  # other looks at inputs: the input, and the step
    looks: set[int] = set()  # all that ever were in it
    wanted = set(plan.outputs)
    items: list[_Row | Aside] = []
    made.frame = plan.frame.copy()

    def aside(step: Step) -> None:
        """Let Python run a step, after those that look at its inputs in another way."""
        for slot in step.reads():
            if slot in seen_as:
                aside(seen_as.pop(slot)[1])
        items.append(Aside(_performed(step), step.targets))
        made.quiet = False
        targets = [t for t in step.targets if t > 0]
        foreign.update(targets)
        made.shapes.update((t, kind(frame[t])) for t in targets if t not in looks)

    def spans(step: Step) -> list[tuple[int, int, int, int]]:
        """Where the inputs of a step lie that come anew each time."""
        found = []
        for slot in step.sources:
            if (slot in foreign or slot in seen_as) and frame[slot] is not None:
                origin = seen_as[slot][0] if slot in seen_as else slot
                found.append((origin, given.get(origin) or address(frame[slot]), *extent(frame[slot])))
        return found

    around = call_recorder.recording()  # of the graph in which this one is a body
    call_recorder.record(notes)
    try:
        for step, dead in zip(plan.steps, plan.frees, strict=True):
            notes.calls, notes.beside = [], False
            read = set(step.reads())
            args = [frame[i] for i in step.sources]
            perform(step, list(args), frame, budget, adapt)
            here.add(notes.buffers)
            targets = [t for t in step.targets if t > 0]
            known = not step.bodies and step.kind != "random"
            settled = all(step.sources[i] in fixed for i, _, _ in step.forms)  # what a kernel takes as numbers, not as an array
            data = step.sources[0] if step.sources else NOTHING
            runs = "once"
            if known and (read <= fixed or step.kind == "shape"):
                fixed.update(targets)
                for t in targets:
                    frame[t] = made.frame[t] = here.apart(frame[t])
            elif step.native and settled and notes.calls and not notes.beside and all(here.holds(frame[t]) for t in targets):
                runs = "machine code"
                if not items or not isinstance(items[-1], _Row):
                    items.append(_Row())
                row = items[-1]
                assert isinstance(row, _Row)
                row.add(notes.calls, spans(step))
            elif data not in fixed and read - {data} <= fixed and _looks(step, frame) and (data in given or data not in foreign):
                if data in given or data in seen_as:
                    origin = seen_as[data][0] if data in seen_as else data
                    seen_as.update((t, (origin, step)) for t in targets)
                    made.shapes.update((t, kind(frame[t])) for t in targets)
                    looks.update(targets)
            else:
                runs = "Python"
                aside(step)
                for slot in read - foreign:
                    if made.frame[slot] is None:
                        made.frame[slot] = here.view(frame[slot])
            if seen is not None:
                seen(step, args, [frame[t] for t in targets], runs)
            del args
            for t in targets:
                if t in wanted and t in seen_as:
                    aside(seen_as.pop(t)[1])
                if t in wanted and t not in foreign and t not in fixed:
                    made.frame[t] = here.view(frame[t])
            if items:
                others = wanted | looks | set(given)  # looks may be taken again later
                items[-1].frees += [slot for slot in dead if slot in foreign and slot not in others]
            for i in dead:
                frame[i] = None
    finally:
        call_recorder.record(around)
    made.items = [Calls(item.calls, item.patches, item.frees) if isinstance(item, _Row) else item for item in items]
    return tuple(frame[i] for i in plan.outputs), made


def _performed(step: Step) -> Callable[[list[Any], Budget, Any], None]:
    """A step by itself on a frame."""
    return lambda frame, budget, adapt: perform(step, [frame[s] for s in step.sources], frame, budget, adapt)


def _looks(step: Step, frame: list[Any]) -> bool:
    """Whether a step's results are the memory of its first input seen in another way."""
    source = frame[step.sources[0]]
    if step.kind != "view" or not isinstance(source, np.ndarray) or not source.size:
        return False
    low, high = extent(source)
    results = [frame[t] for t in step.targets if t > 0]
    return all(isinstance(r, np.ndarray) and r.size and low <= address(r) < high for r in results)


class _Spans:
    """The memory of a recording."""

    def __init__(self) -> None:
        self._buffers: list[tuple[int, int, Array]] = []

    def add(self, buffers: list[Array]) -> None:
        for buffer in buffers[len(self._buffers) :]:
            where = address(buffer)
            self._buffers.append((where, where + buffer.size, buffer))

    def _find(self, where: int) -> tuple[int, Array] | None:
        return next(((low, buffer) for low, high, buffer in self._buffers if low <= where < high), None)

    def holds(self, value: Any) -> bool:
        return isinstance(value, np.ndarray) and (not value.size or self._find(address(value)) is not None)

    def apart(self, value: Any) -> Any:
        """A value that stays for good: not in memory that calls before it use each time."""
        return value.copy(order="K") if isinstance(value, np.ndarray) and value.size and self.holds(value) else value

    def view(self, value: Any) -> Any:
        """An array of the recording's memory that does not keep it from being used again."""
        found = self._find(address(value)) if isinstance(value, np.ndarray) and value.size else None
        if found is None:
            return value
        low, buffer = found
        return np.ndarray(value.shape, value.dtype, buffer, address(value) - low, value.strides)
