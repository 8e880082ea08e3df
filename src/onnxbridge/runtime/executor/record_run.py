"""Recording a run, so that it can be replayed (`recorded_run.py`) for inputs of the same shapes.

Recording runs the plan as `execute` does, in memory that belongs to the recording. A step whose results depend on the shapes
alone is not run again. A view of the recording's memory or of an input needs nothing. A step that only calls compiled kernels
becomes rows of a table of calls. Any other step is run by Python in each replay, and the addresses of its results are written
into the calls that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.runtime.executor.kernels.array_layout import Array, address
from onnxbridge.runtime.executor.kernels.run import call_recorder
from onnxbridge.runtime.executor.kernels.run.call_table import ARGUMENTS, WIDTH, Call
from onnxbridge.runtime.executor.plan import NOTHING, Plan, Step, perform
from onnxbridge.runtime.executor.recorded_run import CallSequence, Patch, PythonStep, Recording, extent, kind

Observer = Callable[[Step, list[Any], list[Any], str, int], None]


@dataclass(slots=True)
class _OpenSequence:
    """Calls that follow each other, while they are recorded."""

    calls: list[Call] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    frees: list[int] = field(default_factory=list)

    def add(self, calls: list[Call], input_extents: list[tuple[int, int, int, int]]) -> None:
        """Append calls, with the arguments that point into arrays that differ between runs: slot, address, extent."""
        for call in calls:
            for k, (letter, value) in enumerate(zip(call.kernel.signature, call.arguments, strict=False)):
                if letter != "p":
                    continue
                for slot, start, low, high in input_extents:
                    if low <= value < high:
                        self.patches.append((len(self.calls) * WIDTH + ARGUMENTS + k, slot, value - start))
                        break
            self.calls.append(call)


def worthwhile(plan: Plan) -> bool:
    """Whether a plan has steps that call compiled kernels, without which a recording gains nothing."""
    return any(step.native for step in plan.steps)


def record(
    plan: Plan, frame: list[Any], inputs: Sequence[int], budget: Budget, adapt: Any, observe: Observer | None = None
) -> tuple[tuple[Any, ...], Recording]:
    """Run a plan on a frame that has its inputs in their slots; gives the outputs and the recording.

    `observe` is called for each step with its arguments, its results, how it will run in a replay, and in how many pieces.
    """
    made = Recording([None] * len(frame), plan.outputs)
    recorder, memory = made.recorder, _Memory()
    constant = {i for i, value in enumerate(plan.frame) if value is not None} | {NOTHING}
    static = set(constant)  # known from the shapes of the inputs alone
    input_at = {slot: address(frame[slot]) for slot in inputs if slot not in constant}
    external = set(input_at)  # in memory that is not the recording's
    view_of: dict[int, tuple[int, Step]] = {}  # views of inputs: the input, and the step
    views: set[int] = set()  # all that were ever in it
    outputs = set(plan.outputs)
    items: list[_OpenSequence | PythonStep] = []
    made.frame = plan.frame.copy()

    def run_in_python(step: Step) -> None:
        """Let Python run a step, after those that make the views that it reads."""
        for slot in step.reads():
            if slot in view_of:
                run_in_python(view_of.pop(slot)[1])
        items.append(PythonStep(_performed(step), step.targets))
        made.all_native = False
        targets = [t for t in step.targets if t > 0]
        external.update(targets)
        made.shapes.update((t, kind(frame[t])) for t in targets if t not in views)

    def input_extents(step: Step) -> list[tuple[int, int, int, int]]:
        """The memory of those inputs of a step that differ between runs."""
        found = []
        for slot in step.sources:
            if (slot in external or slot in view_of) and frame[slot] is not None:
                origin = view_of[slot][0] if slot in view_of else slot
                found.append((origin, input_at.get(origin) or address(frame[slot]), *extent(frame[slot])))
        return found

    outer = call_recorder.active_recorder()  # of the graph in which this one is a body
    call_recorder.activate(recorder)
    try:
        for step, dead in zip(plan.steps, plan.frees, strict=True):
            recorder.calls, recorder.incomplete = [], False
            read = set(step.reads())
            args = [frame[i] for i in step.sources]
            perform(step, list(args), frame, budget, adapt)
            memory.add(recorder.buffers)
            targets = [t for t in step.targets if t > 0]
            known = not step.bodies and step.kind != "random"
            data = step.sources[0] if step.sources else NOTHING
            fixed = all(step.sources[i] in static for i, _, _ in step.forms)  # inputs that a kernel takes as numbers
            compiled = step.native and fixed and recorder.calls and not recorder.incomplete
            viewed = data not in static and read - {data} <= static and _is_view(step, frame)
            runs = "once"
            if known and (read <= static or step.kind == "shape"):
                static.update(targets)
                for t in targets:
                    frame[t] = made.frame[t] = memory.detached(frame[t])
            elif compiled and all(memory.contains(frame[t]) for t in targets):
                runs = "compiled kernel"
                if not items or not isinstance(items[-1], _OpenSequence):
                    items.append(_OpenSequence())
                row = items[-1]
                assert isinstance(row, _OpenSequence)
                row.add(recorder.calls, input_extents(step))
            elif viewed and (data in input_at or data not in external):
                if data in input_at or data in view_of:
                    origin = view_of[data][0] if data in view_of else data
                    view_of.update((t, (origin, step)) for t in targets)
                    made.shapes.update((t, kind(frame[t])) for t in targets)
                    views.update(targets)
            else:
                runs = "Python"
                run_in_python(step)
                for slot in read - external:
                    if made.frame[slot] is None:
                        made.frame[slot] = memory.view(frame[slot])
            if observe is not None:
                pieces = max((call.units for call in recorder.calls), default=1)
                observe(step, args, [frame[t] for t in targets], runs, pieces)
            del args
            for t in targets:
                if t in outputs and t in view_of:
                    run_in_python(view_of.pop(t)[1])
                if t in outputs and t not in external and t not in static:
                    made.frame[t] = memory.view(frame[t])
            if items:
                others = outputs | views | set(input_at)  # views may be made of them later
                items[-1].frees += [slot for slot in dead if slot in external and slot not in others]
            for i in dead:
                frame[i] = None
    finally:
        call_recorder.activate(outer)
    made.items = [CallSequence(i.calls, i.patches, i.frees) if isinstance(i, _OpenSequence) else i for i in items]
    return tuple(frame[i] for i in plan.outputs), made


def _performed(step: Step) -> Callable[[list[Any], Budget, Any], None]:
    """A function that runs a step on a frame."""
    return lambda frame, budget, adapt: perform(step, [frame[s] for s in step.sources], frame, budget, adapt)


def _is_view(step: Step, frame: list[Any]) -> bool:
    """Whether a step's results are views of its first input."""
    source = frame[step.sources[0]]
    if step.kind != "view" or not isinstance(source, np.ndarray) or not source.size:
        return False
    low, high = extent(source)
    results = [frame[t] for t in step.targets if t > 0]
    return all(isinstance(r, np.ndarray) and r.size and low <= address(r) < high for r in results)


class _Memory:
    """The memory of a recording."""

    def __init__(self) -> None:
        self._buffers: list[tuple[int, int, Array]] = []

    def add(self, buffers: list[Array]) -> None:
        for buffer in buffers[len(self._buffers) :]:
            where = address(buffer)
            self._buffers.append((where, where + buffer.size, buffer))

    def _find(self, where: int) -> tuple[int, Array] | None:
        return next(((low, buffer) for low, high, buffer in self._buffers if low <= where < high), None)

    def contains(self, value: Any) -> bool:
        return isinstance(value, np.ndarray) and (not value.size or self._find(address(value)) is not None)

    def detached(self, value: Any) -> Any:
        """A value that later runs do not change: a copy of what lies in the recording's memory."""
        return value.copy(order="K") if isinstance(value, np.ndarray) and value.size and self.contains(value) else value

    def view(self, value: Any) -> Any:
        """A view of the recording's memory that does not hold its lease."""
        found = self._find(address(value)) if isinstance(value, np.ndarray) and value.size else None
        if found is None:
            return value
        low, buffer = found
        return np.ndarray(value.shape, value.dtype, buffer, address(value) - low, value.strides)
