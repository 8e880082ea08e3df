"""A plan while passes change it: which step makes a value, which ones use it, and which values are constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxbridge.lowering import coerce
from onnxbridge.runtime.executor.kernels.run.call_recorder import as_fallback
from onnxbridge.runtime.executor.plan import NOTHING, Plan, Step

ENDS = -1  # the user of a value that is an output of the plan


class PlanRewriter:
    """A copy of a plan's steps and constants; removed steps leave None."""

    def __init__(self, plan: Plan, defaults: Mapping[int, Any]) -> None:
        self._base = plan
        self.frame = list(plan.frame)
        for slot, value in defaults.items():
            self.frame[slot] = value
        self._steps: list[Step | None] = list(plan.steps)
        self._fused: set[int] = set()
        self._run_plan: dict[int, int] = {}
        self._used: dict[int, list[int]] = {}
        for slot in plan.outputs:
            self._used.setdefault(slot, []).append(ENDS)
        for i, step in enumerate(plan.steps):
            self._add(i, step)

    def _add(self, i: int, step: Step) -> None:
        for slot in step.reads():
            self._used.setdefault(slot, []).append(i)
        for slot in step.targets:
            if slot > 0:
                self._run_plan[slot] = i

    def _reads(self, i: int) -> Iterable[int]:
        step = self._steps[i]
        return () if step is None else step.reads()

    def _remove(self, i: int) -> None:
        step = self._steps[i]
        assert step is not None
        for slot in step.reads():
            self._used[slot].remove(i)
        self._steps[i] = None

    def steps(self, *ops: str) -> Iterator[tuple[int, Step]]:
        """The plan's own steps of these operators (all for none), in order, with their indices; not those that passes added."""
        for i in range(len(self._steps)):
            step = self._steps[i]
            if step is not None and i not in self._fused and (not ops or step.op in ops):
                yield i, step

    def constant(self, slot: int) -> Any:
        """A constant's value, None for computed and omitted values."""
        return self.frame[slot] if slot != NOTHING else None

    def maker(self, slot: int) -> tuple[int, Step] | None:
        """The step that computes a value."""
        i = self._run_plan.get(slot)
        step = None if i is None else self._steps[i]
        return None if i is None or step is None else (i, step)

    def user(self, slot: int) -> tuple[int, Step] | None:
        """The only step that uses a value; None where there are several, or where it is an output."""
        users = set(self._used.get(slot, ()))
        if len(users) != 1 or ENDS in users:
            return None
        i = users.pop()
        step = self._steps[i]
        assert step is not None
        return None if step.bodies or slot not in step.sources else (i, step)

    def single(self, step: Step) -> int:
        """The result of a step if only the first is used, 0 otherwise."""
        given = [t for t in step.targets if t > 0 and self._used.get(t)]
        return given[0] if given == [step.targets[0]] else NOTHING

    def fuse(
        self,
        indices: Sequence[int],
        op: str,
        run: Callable[..., Any],
        sources: Sequence[int],
        targets: Sequence[int],
        attrs: dict[str, Any] | None = None,
        how: tuple[str, int] = ("", 0),
    ) -> None:
        """Replace steps by one at the index of the last; `how` is its algorithm, and its work for each element."""
        first = self._steps[min(indices)]
        assert first is not None
        parts = self._parts(indices)
        step = Step(op, first.location, run, tuple(sources), attrs or {}, tuple(targets), (), (), True, parts, *how)
        read = {slot for i in indices for slot in self._reads(i)}
        for i in indices:
            self._remove(i)
        self._steps[max(indices)] = step
        self._add(max(indices), step)
        self._fused.add(max(indices))
        for slot in read:
            if not self._used[slot]:
                self.frame[slot] = None  # weights that were packed need not be stored twice

    def _parts(self, indices: Sequence[int]) -> tuple[str, ...]:
        found = [step for i in sorted(set(indices)) if (step := self._steps[i]) is not None]
        return tuple(op for step in found for op in (step.parts or (step.op,)))

    def swap(self, i: int, kernel: Callable[..., Any], how: tuple[str, int] = ("", 0)) -> None:
        """Let a step call a function of the same arguments, and its own rule where that returns None."""
        step = self._steps[i]
        assert step is not None
        rule = as_fallback(step.run)

        def run(*args: Any, **attrs: Any) -> Any:
            found = kernel(*args, **attrs)
            return rule(*args, **attrs) if found is None else found

        self._steps[i] = replace(step, run=run, native=True, algorithm=how[0], work=how[1])

    def set_bodies(self, i: int, bodies: tuple[tuple[str, Plan], ...]) -> None:
        """Replace the bodies of a step; they capture the same values."""
        step = self._steps[i]
        assert step is not None
        self._steps[i] = replace(step, bodies=bodies)

    def with_constant_forms(self, i: int, step: Step) -> Step:
        """The step with its constant inputs converted to the form that its rule expects."""
        sources, forms = list(step.sources), []
        for k, form, name in step.forms:
            value = self.constant(sources[k])
            if value is None:
                forms.append((k, form, name))
            else:
                self.frame.append(coerce(value, form, name))
                sources[k] = len(self.frame) - 1
        self._remove(i)
        changed = replace(step, sources=tuple(sources), forms=tuple(forms))
        self._steps[i] = changed
        self._add(i, changed)
        return changed

    def set_results(self, i: int, values: Sequence[Any]) -> None:
        """Remove a step whose results are constants."""
        step = self._steps[i]
        assert step is not None
        for slot, value in zip(step.targets, values, strict=False):
            if slot > 0:
                self.frame[slot] = value
        self._remove(i)

    def forward(self, i: int) -> None:
        """Remove a step that returns its first input unchanged."""
        step = self._steps[i]
        assert step is not None
        old, new = step.targets[0], step.sources[0]
        if ENDS in self._used.get(old, ()):
            return
        for j in set(self._used.get(old, ())):
            user = self._steps[j]
            assert user is not None
            if user.bodies:
                return
        self._remove(i)
        for j in set(self._used.get(old, ())):
            user = self._steps[j]
            assert user is not None
            self._remove(j)
            changed = replace(user, sources=tuple(new if s == old else s for s in user.sources))
            self._steps[j] = changed
            self._add(j, changed)

    def plan(self) -> Plan:
        """The resulting plan; constants that nothing reads any more are released."""
        base = self._base
        steps = [step for step in self._steps if step is not None]
        found = Plan(self.frame, steps, base.inputs, base.outputs, base.captured, base.declared).pruned(base.outputs)
        needed = {slot for step in found.steps for slot in step.reads()} | set(base.outputs)
        found.frame = [value if i in needed else None for i, value in enumerate(self.frame)]
        return found
