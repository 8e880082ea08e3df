"""Runs a model together with variants of it in which one node is changed; of a variant only what differs is computed.

A variant stores only the values that differ from those of the model. A step is run for it only if it reads one of them, and a
result that equals the model's is dropped, so a variant costs what is downstream of its node, or less. All of it is freed as the
model's own values are, so a run takes the memory of one run for the model and at most as much for each variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.hub.io.resource_limits import Budget, Limits, limited
from onnxbridge.hub.ir import graph_reader
from onnxbridge.lowering import Ref
from onnxbridge.runtime.executor.plan import Plan, Step, execute, perform
from onnxbridge.runtime.executor.plan_compiler import Compiler, Settings
from onnxbridge.runtime.executor.recorded_run import owned, without_warnings
from onnxbridge.runtime.executor.work import ELEMENT, STEP, operations


@dataclass(frozen=True)
class Variant:
    """A changed node, compiled.

    Attributes:
        plan: computes the node's outputs from its variable inputs.
        inputs, outputs: the slots of the model's values that these are.
        ready: the number of steps after which all inputs are computed.
        reached: the steps whose results the change may reach.
    """

    plan: Plan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    ready: int
    reached: frozenset[int]


@dataclass(frozen=True)
class Results:
    """The outputs of the model, and for each variant its outputs or the error that it failed with.

    `work` are the operations of all of them.
    """

    outputs: list[Any]
    variants: list[list[Any] | Exception]
    work: int


class Differing(dict[int, Any]):
    """The values of a variant that differ from the model's, by slot; any other is the model's own."""

    def __init__(self, frame: list[Any]) -> None:
        super().__init__()
        self._frame = frame

    def __missing__(self, slot: int) -> Any:
        return self._frame[slot]


class Rerunner:
    """Runs a plan with variants beside it. `work` are the operations of one run, 0 if that is not known.

    Attributes:
        peak: the most bytes that values of the model took at once, in runs so far; small values are not counted.
    """

    def __init__(
        self, plan: Plan, slots: Mapping[str, int], settings: Settings, limits: Limits,
        inputs_by_slot: Callable[[Mapping[str, Any]], dict[int, Any]], work: int,
    ) -> None:  # fmt: skip
        self._plan, self._slots, self._settings, self._limits = plan, slots, settings, limits
        self._inputs_by_slot = inputs_by_slot
        self._made_by = {target: i for i, step in enumerate(plan.steps) for target in step.targets if target > 0}
        self._work = [max(STEP, work // max(len(plan.steps), 1))] * len(plan.steps)
        self._downstream: dict[tuple[int, ...], list[int]] = {}
        self.peak = 0

    def variant(self, changed: ir.Graph) -> Variant:
        """A variant in which one node is the one of this graph, whose inputs and outputs have the names of the model's values.
        Outputs that no output of the model depends on are left out.

        Raises:
            ConversionError: if the changed node cannot be run.
        """
        compiler = Compiler(self._settings)
        calls = list(graph_reader.calls_of(changed))
        live = self._live(str(v.name) for v in changed.outputs)
        plan = compiler.compile(list(changed.inputs), calls, [Ref(v) for v in changed.outputs if v.name in live])
        inputs, outputs = tuple(self._slots[str(v.name)] for v in changed.inputs), tuple(live.values())
        ready = max((self._made_by[i] + 1 for i in inputs if i in self._made_by), default=0)
        return Variant(plan, inputs, outputs, ready, frozenset(self._reached(outputs)))

    def cost(self, outputs: Iterable[str]) -> int:
        """The operations of a variant at most, given the outputs of its node: exact after a run, before it equally many for each
        step."""
        slots = tuple(self._live(outputs).values())
        return sum(self._work[i] for i in {self._made_by[slot] for slot in slots}.union(self._reached(slots)))

    @property
    def own_cost(self) -> int:
        """The operations of the model itself: exact after a run."""
        return sum(self._work)

    def run(self, variants: Sequence[Variant], feeds: Mapping[str, Any]) -> Results:
        """The outputs of the model and of each variant for these inputs."""
        plan, adapt = self._plan, self._settings.adapt_result
        inputs = self._inputs_by_slot(feeds)
        frame = plan.frame.copy()
        for slot, value in inputs.items():
            frame[slot] = value
        sizes: dict[int, int] = {}
        with limited(self._limits) as budget, without_warnings():
            running = [_Running(v, frame, self._settings) for v in variants]
            for index, (step, dead) in enumerate(zip(plan.steps, plan.frees, strict=True)):
                for one in running:
                    one.start(index, budget)
                constants = self._adapt_constants(step, frame)
                args, before = [frame[i] for i in step.sources], budget.work
                perform(step, args, frame, budget, adapt)
                results = {i: frame[i] for i in step.targets if i > 0}
                self._work[index] = budget.work - before + operations(step.op, args, [*results.values()], step.attrs)
                del args
                sizes |= {i: value.nbytes for i, value in results.items() if isinstance(value, np.ndarray) and value.base is None}
                self.peak = max(self.peak, sum(sizes.values()))
                del results
                for one in running:
                    one.follow(index, step, dead, budget)
                for i in constants:
                    frame[i] = plan.frame[i]
                for i in dead:
                    frame[i] = None
                    sizes.pop(i, None)
        kept = (*inputs.values(), *plan.frame)
        outputs = owned((frame[i] for i in plan.outputs), kept)
        found = [one.error or owned((one.values[i] for i in plan.outputs), kept) for one in running]
        return Results(outputs, found, sum(one.work for one in running) + self.own_cost)

    def _adapt_constants(self, step: Step, frame: list[Any]) -> list[int]:
        """Convert a step's constants once for the model and all variants, such as weights that are widened at each use; gives
        the slots of those that changed."""
        adapt = self._settings.adapt_result
        if adapt is None:
            return []
        changed = []
        for i in set(step.sources):
            if self._plan.frame[i] is not None and (value := adapt(frame[i])) is not frame[i]:
                frame[i] = value
                changed.append(i)
        return changed

    def _live(self, names: Iterable[str]) -> dict[str, int]:
        """The slots of these values, without those that no output depends on."""
        return {name: slot for name in names if (slot := self._slots.get(name)) is not None and slot in self._made_by}

    def _reached(self, outputs: tuple[int, ...]) -> list[int]:
        """The steps that read these values, or values computed from them."""
        if outputs not in self._downstream:
            reached, slots = [], set(outputs)
            for i, step in enumerate(self._plan.steps):
                if not slots.isdisjoint(step.reads()):
                    reached.append(i)
                    slots.update(t for t in step.targets if t > 0)
            self._downstream[outputs] = reached
        return self._downstream[outputs]


class _Running:
    """A variant during a run: its values that differ, and how it ended."""

    def __init__(self, variant: Variant, frame: list[Any], settings: Settings) -> None:
        self._variant, self._frame, self._settings = variant, frame, settings
        self.values = Differing(frame)
        self.error: Exception | None = None
        self.work = 0

    def start(self, index: int, budget: Budget) -> None:
        """Run the changed node before the first step that can need it."""
        variant = self._variant
        if index != variant.ready:
            return
        frame = variant.plan.frame.copy()
        for inner, outer in zip(variant.plan.inputs, variant.inputs, strict=True):
            if inner > 0:
                frame[inner] = self._frame[outer]
        before = budget.work
        try:
            results = execute(variant.plan, frame, budget, self._settings.adapt_result)
        except Exception as e:
            self._fail(e)
            return
        self.work += budget.work - before
        self.values.update(zip(variant.outputs, results, strict=True))

    def follow(self, index: int, step: Step, dead: Sequence[int], budget: Budget) -> None:
        """Run a step on the values that differ, after the model has run it; drop those that do not, and those that are freed."""
        values = self.values
        if index in self._variant.reached and not values.keys().isdisjoint(step.reads()):
            args, before = [values[i] for i in step.sources], budget.work
            try:
                perform(step, args, values, budget, self._settings.adapt_result)
            except Exception as e:
                self._fail(e)
                return
            results = [values[i] for i in step.targets if i > 0]
            self.work += budget.work - before + operations(step.op, args, results, step.attrs)
        for i in step.targets:
            if i in values:
                self.work += ELEMENT * getattr(values[i], "size", 0)
                if equal(values[i], self._frame[i]):
                    del values[i]
        for i in dead:
            values.pop(i, None)

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.values.clear()


def equal(a: Any, b: Any) -> bool:
    """Whether two values are the same in every element; NaN equals nothing."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a is b or (a.dtype == b.dtype and a.shape == b.shape and bool(np.all(a == b)))
    return a is b
