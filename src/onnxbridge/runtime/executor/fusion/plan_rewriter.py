"""A plan while passes change it: which step makes a value, which ones use it, and which values are constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxbridge.lowering import to_form
from onnxbridge.runtime.executor.plan import NOTHING, Plan, Step

ENDS = -1  # the user of a value that is an output of the plan


class Draft:
    """A copy of a plan's steps and constants, with places where steps were taken out left empty."""

    def __init__(self, plan: Plan, defaults: Mapping[int, Any]) -> None:
        self._base = plan
        self.frame = list(plan.frame)
        for slot, value in defaults.items():
            self.frame[slot] = value
        self._steps: list[Step | None] = list(plan.steps)
        self._joined: set[int] = set()
        self._made: dict[int, int] = {}
        self._used: dict[int, list[int]] = {}
        for slot in plan.outputs:
            self._used.setdefault(slot, []).append(ENDS)
        for i, step in enumerate(plan.steps):
            self._enter(i, step)

    def _enter(self, i: int, step: Step) -> None:
        for slot in step.reads():
            self._used.setdefault(slot, []).append(i)
        for slot in step.targets:
            if slot > 0:
                self._made[slot] = i

    def _reads(self, i: int) -> Iterable[int]:
        step = self._steps[i]
        return () if step is None else step.reads()

    def _leave(self, i: int) -> None:
        step = self._steps[i]
        assert step is not None
        for slot in step.reads():
            self._used[slot].remove(i)
        self._steps[i] = None

    def steps(self, *ops: str) -> Iterator[tuple[int, Step]]:
        """The plan's own steps of these operators (all for none), in order, with their places; not those that passes made."""
        for i in range(len(self._steps)):
            step = self._steps[i]
            if step is not None and i not in self._joined and (not ops or step.op in ops):
                yield i, step

    def constant(self, slot: int) -> Any:
        """A constant's value, None for what is computed or left out."""
        return self.frame[slot] if slot != NOTHING else None

    def maker(self, slot: int) -> tuple[int, Step] | None:
        """The step that makes a value."""
        i = self._made.get(slot)
        step = None if i is None else self._steps[i]
        return None if i is None or step is None else (i, step)

    def user(self, slot: int) -> tuple[int, Step] | None:
        """The step that alone uses a value, once or more; None where others do, or where it is an output."""
        users = set(self._used.get(slot, ()))
        if len(users) != 1 or ENDS in users:
            return None
        i = users.pop()
        step = self._steps[i]
        assert step is not None
        return None if step.bodies or slot not in step.sources else (i, step)

    def used_by(self, slot: int, *places: int) -> bool:
        """Whether the steps at these places use a value, and nobody else."""
        return set(self._used.get(slot, ())) == set(places)

    def single(self, step: Step) -> int:
        """The value of a step that gives exactly one, 0 otherwise."""
        given = [t for t in step.targets if t > 0 and self._used.get(t)]
        return given[0] if given == [step.targets[0]] else NOTHING

    def join(
        self,
        places: Sequence[int],
        op: str,
        run: Callable[..., Any],
        sources: Sequence[int],
        targets: Sequence[int],
        attrs: dict[str, Any] | None = None,
        how: tuple[str, int] = ("", 0),
    ) -> None:
        """Put one step in the place of the last of these; `how` is its algorithm, and its work for each element."""
        first = self._steps[min(places)]
        assert first is not None
        step = Step(op, first.where, run, tuple(sources), attrs or {}, tuple(targets), (), (), True, self._parts(places), *how)
        read = {slot for i in places for slot in self._reads(i)}
        for i in places:
            self._leave(i)
        self._steps[max(places)] = step
        self._enter(max(places), step)
        self._joined.add(max(places))
        for slot in read:
            if not self._used[slot]:
                self.frame[slot] = None  # weights that are packed by now need not be held twice

    def _parts(self, places: Sequence[int]) -> tuple[str, ...]:
        found = [step for i in sorted(set(places)) if (step := self._steps[i]) is not None]
        return tuple(op for step in found for op in (step.parts or (step.op,)))

    def swap(self, i: int, run: Callable[..., Any], how: tuple[str, int] = ("", 0)) -> None:
        """Let a step run another function of the same arguments."""
        step = self._steps[i]
        assert step is not None
        self._steps[i] = replace(step, run=run, native=True, algorithm=how[0], work=how[1])

    def rebody(self, i: int, bodies: tuple[tuple[str, Plan], ...]) -> None:
        """Let a step have other bodies, which look at the same values around them."""
        step = self._steps[i]
        assert step is not None
        self._steps[i] = replace(step, bodies=bodies)

    def known(self, i: int, step: Step) -> Step:
        """The step with those inputs that are constants by now in the form that its rule wants."""
        sources, forms = list(step.sources), []
        for k, form, name in step.forms:
            value = self.constant(sources[k])
            if value is None:
                forms.append((k, form, name))
            else:
                self.frame.append(to_form(value, form, name))
                sources[k] = len(self.frame) - 1
        self._leave(i)
        changed = replace(step, sources=tuple(sources), forms=tuple(forms))
        self._steps[i] = changed
        self._enter(i, changed)
        return changed

    def settle(self, i: int, values: Sequence[Any]) -> None:
        """Take a step out whose results are known."""
        step = self._steps[i]
        assert step is not None
        for slot, value in zip(step.targets, values, strict=False):
            if slot > 0:
                self.frame[slot] = value
        self._leave(i)

    def forward(self, i: int) -> None:
        """Take a step out that gives its first input as it is."""
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
        self._leave(i)
        for j in set(self._used.get(old, ())):
            user = self._steps[j]
            assert user is not None
            self._leave(j)
            changed = replace(user, sources=tuple(new if s == old else s for s in user.sources))
            self._steps[j] = changed
            self._enter(j, changed)

    def plan(self) -> Plan:
        """The plan of what is left; constants that nothing reads any more are let go."""
        base = self._base
        steps = [step for step in self._steps if step is not None]
        found = Plan(self.frame, steps, base.inputs, base.outputs, base.captured, base.declared).pruned(base.outputs)
        needed = {slot for step in found.steps for slot in step.reads()} | set(base.outputs)
        found.frame = [value if i in needed else None for i, value in enumerate(self.frame)]
        return found
