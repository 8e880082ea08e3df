"""A graph compiled once into a flat list of steps on numbered slots, and the interpreter that runs them.

A subgraph is a plan of its own; the values that it captures are copied into its slots when its callable is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, Problem, SourceLocation, Unsupported
from onnxbridge.hub.io.resource_limits import Budget
from onnxbridge.lowering import coerce
from onnxbridge.runtime.executor.work import operations

if TYPE_CHECKING:
    from onnxbridge.runtime.executor.loop_spec import Iterations, LoopSpec

DIRECTION = "ONNX to NumPy"
NOTHING = 0  # the slot of an omitted input, always None

Convert = Callable[[Any], Any]
Frame = list[Any] | dict[int, Any]
"""The values of a run by slot."""


@dataclass(slots=True)
class Step:
    """One call of a rule: where its arguments come from, and where its results go (-1: nowhere)."""

    op: str
    location: SourceLocation
    run: Callable[..., Any]
    sources: tuple[int, ...]
    attrs: dict[str, Any]
    targets: tuple[int, ...]
    forms: tuple[tuple[int, str, str], ...] = ()
    bodies: tuple[tuple[str, Plan], ...] = ()
    native: bool = False  # created by a pass: it calls `mark_incomplete` when it does more than its kernel calls
    parts: tuple[str, ...] = ()  # the operators that a pass fused, where there were several
    algorithm: str = ""
    work: int = 0  # multiplications for each element of the first result
    kind: str = ""  # of the rule, see rules.py

    def reads(self) -> Iterable[int]:
        """Every slot that must be filled before this step, those that its subgraphs capture included."""
        yield from self.sources
        for _, plan in self.bodies:
            yield from (outer for outer, _ in plan.captured)


class BodyRunner(Protocol):
    """Runs a body that is called repeatedly; `loop_replay.LoopReplay` is one."""

    @property
    def ready(self) -> bool: ...

    def run(self, plan: Plan, frame: list[Any], budget: Budget) -> tuple[Any, ...]: ...

    def run_iterations(
        self, plan: Plan, frame: list[Any], spec: LoopSpec, iterations: int, budget: Budget
    ) -> Iterations | None: ...


@dataclass(slots=True)
class Plan:
    """A compiled graph. `frame` has the constants in their slots and None everywhere else."""

    frame: list[Any]
    steps: list[Step]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: list[tuple[int, int]] = field(default_factory=list)
    declared: tuple[tuple[Any, list[int]], ...] = ()
    frees: list[tuple[int, ...]] = field(default_factory=list)
    replay: BodyRunner | None = None  # of the body of a loop

    def operators(self) -> Iterator[str]:
        """The operators of all steps, those of subgraphs included."""
        for step in self.steps:
            yield step.op
            for _, body in step.bodies:
                yield from body.operators()

    def pruned(self, outputs: tuple[int, ...]) -> Plan:
        """The part that these outputs need; a slot is freed after its last use."""
        constants = {i for i, value in enumerate(self.frame) if value is not None}
        needed = set(outputs)
        seen = needed | constants | {NOTHING}
        steps: list[Step] = []
        frees: list[tuple[int, ...]] = []
        for step in reversed(self.steps):
            if needed.isdisjoint(step.targets):
                continue
            reads = set(step.reads())
            dead = (reads | {t for t in step.targets if t > 0}) - seen
            needed |= reads
            seen |= dead
            steps.append(step)
            frees.append(tuple(dead))
        steps.reverse()
        frees.reverse()
        return Plan(self.frame, steps, self.inputs, outputs, self.captured, self.declared, frees)


def execute(
    plan: Plan, frame: list[Any], budget: Budget, adapt: Convert | None, see: Callable[[int, Any], None] | None = None
) -> tuple[Any, ...]:
    """Run a plan's steps on a frame that has its inputs in their slots; gives the outputs.

    `see` is called with the slot and the value of each result, before values that are no longer needed are freed.
    """
    timed = budget.limits.seconds is not None
    for step, dead in zip(plan.steps, plan.frees, strict=True):
        if timed:
            budget.operator = step.op
            budget.check_time()
        args = [frame[i] for i in step.sources]
        perform(step, args, frame, budget, adapt)
        budget.work += operations(step.op, args, [frame[i] for i in step.targets if i > 0], step.attrs)
        del args
        if see is not None:
            for i in step.targets:
                if i > 0:
                    see(i, frame[i])
        for i in dead:
            frame[i] = None
    return tuple(frame[i] for i in plan.outputs)


def perform(step: Step, args: list[Any], frame: Frame, budget: Budget, adapt: Convert | None) -> None:
    """Run one step on its arguments and put the results into their slots."""
    budget.operator = step.op
    try:
        for i, form, name in step.forms:
            args[i] = coerce(args[i], form, name)
        if step.bodies:
            inner = {name: Subgraph(body, frame, budget, adapt) for name, body in step.bodies}
            results = step.run(*args, **step.attrs, **inner)
        else:
            results = step.run(*args, **step.attrs)
    except OnnxbridgeError:
        raise
    except Unsupported as e:
        raise ConversionError(DIRECTION, [Problem(step.op, e.reason, e.hint, (step.location,))]) from e
    except MemoryError as e:
        raise LimitError(f"{step.op} asks for more memory than this machine has: {e}") from e
    except Exception as e:
        e.add_note(f"in {step.op} at {step.location}")
        raise
    if not isinstance(results, tuple):
        results = (results,)
    if len(results) < len(step.targets) and any(t > 0 for t in step.targets[len(results) :]):
        raise ConversionError(DIRECTION, [Problem(step.op, f"its rule gives only {len(results)} outputs", "", (step.location,))])
    for target, result in zip(step.targets, results, strict=False):
        if target > 0:
            if type(result) is not np.ndarray and result is not None and not isinstance(result, (list, dict)):
                result = np.asarray(result)
            if adapt is not None:
                result = adapt(result)
            budget.track(result)
            frame[target] = result


class Subgraph:
    """A subgraph with its captured values, called with its inputs."""

    def __init__(self, plan: Plan, outer: Frame, budget: Budget, adapt: Convert | None) -> None:
        self._plan, self._budget, self._adapt = plan, budget, adapt
        self._frame = plan.frame.copy()
        for there, here in plan.captured:
            self._frame[here] = outer[there]

    @property
    def declared(self) -> list[tuple[Any, list[int]]]:
        """The element type and the sizes that each output declares; a size that is not fixed counts as 0."""
        empty = [(np.zeros(0, d or np.float32), shape) for d, shape in self._plan.declared]
        return [((self._adapt(e) if self._adapt else e).dtype, shape) for e, shape in empty]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        frame, replay = self._filled(inputs), self._plan.replay
        operator = self._budget.operator
        if replay is None:
            results = execute(self._plan, frame, self._budget, self._adapt)
        else:
            results = replay.run(self._plan, frame, self._budget)
        self._budget.operator = operator
        return results

    @property
    def ready(self) -> bool:
        """Whether several iterations can be run at once."""
        return self._plan.replay is not None and self._plan.replay.ready

    def run_iterations(self, inputs: Sequence[Any], spec: LoopSpec, iterations: int) -> Iterations | None:
        """Several iterations at once, the first with these inputs; None where they have to be run one by one."""
        replay = self._plan.replay
        return None if replay is None else replay.run_iterations(self._plan, self._filled(inputs), spec, iterations, self._budget)

    def _filled(self, inputs: Sequence[Any]) -> list[Any]:
        frame = self._frame.copy()
        for slot, value in zip(self._plan.inputs, inputs, strict=True):
            if slot > 0:
                frame[slot] = value
        return frame
