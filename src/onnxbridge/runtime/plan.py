"""A graph compiled once into a flat list of steps on numbered slots, and the loop that runs them.

A subgraph is a plan of its own; what it sees of the graphs around it is copied into its slots when its callable is made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, LimitError, OnnxbridgeError, Problem, Source, Unsupported, merge
from onnxbridge.hub.limits import Budget
from onnxbridge.lowering import Body, Call, Ref, same, to_form
from onnxbridge.rules import REQUIRED, Param, Rule, Rules
from onnxbridge.runtime.numpy.ops.activation import softmax_in_steps

if TYPE_CHECKING:
    from onnxbridge.runtime.again import Again
    from onnxbridge.runtime.course import Course, Trips

DIRECTION = "ONNX to NumPy"
NOTHING = 0  # the slot of an omitted input, always None

Convert = Callable[[Any], Any]
Constant = Callable[[Hashable], Any]


@dataclass(slots=True)
class Step:
    """One call of a rule: where its arguments come from, and where its results go (-1: nowhere)."""

    op: str
    where: Source
    run: Callable[..., Any]
    sources: tuple[int, ...]
    attrs: dict[str, Any]
    targets: tuple[int, ...]
    forms: tuple[tuple[int, str, str], ...] = ()
    bodies: tuple[tuple[str, Plan], ...] = ()
    native: bool = False  # made by a pass: it says itself when it does more than its calls of machine code
    parts: tuple[str, ...] = ()  # the operators that a pass put together, where there were several
    algorithm: str = ""
    work: int = 0  # multiplications for each element of the first result

    def reads(self) -> Iterable[int]:
        """Every slot that must be filled before this step, those that its subgraphs look at included."""
        yield from self.sources
        for _, plan in self.bodies:
            yield from (outer for outer, _ in plan.captured)


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
    again: Again | None = None  # of a body that is run many times: what is known of it by now

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


class Settings:
    """What all plans of a model share: the rules, how constants are made, and what is done to steps and results.

    Operators in `expanded` are run by their expansions, whatever rules there are.
    """

    def __init__(
        self,
        rules: Rules,
        constant: Constant,
        expand: Callable[[Call], Body | None],
        adapt_step: Callable[[Call, Step], None] | None = None,
        adapt_result: Convert | None = None,
        expanded: frozenset[str] = frozenset(),
    ) -> None:
        self.rules = rules
        self.expanded = expanded
        self.constant = constant
        self.expand = expand
        self.adapt_step = adapt_step
        self.adapt_result = adapt_result


class Compiler:
    """Compiles one graph; `outer` compiles the graph around it."""

    def __init__(self, settings: Settings, outer: Compiler | None = None) -> None:
        self.settings = settings
        self.outer = outer
        self.slots: dict[Hashable, int] = {}
        self.frame: list[Any] = [None]
        self.captured: list[tuple[int, int]] = []
        self.steps: list[Step] = []
        self.problems: list[Problem] = []

    def compile(self, inputs: Sequence[Hashable | None], calls: Iterable[Call], outputs: Sequence[Any]) -> Plan:
        """The plan of a graph.

        Raises:
            ConversionError: with every operator that cannot be run.
        """
        places = tuple(-1 if key is None else self._new(key) for key in inputs)
        for call in calls:
            self._add(call)
        if self.problems:
            raise ConversionError(DIRECTION, merge(self.problems))
        found = tuple(self._source(item) for item in outputs)
        return Plan(self.frame, self.steps, places, found, self.captured, tuple(map(_declared, outputs))).pruned(found)

    def _new(self, key: Hashable, value: Any = None) -> int:
        self.frame.append(value)
        self.slots[key] = len(self.frame) - 1
        return self.slots[key]

    def find(self, key: Hashable) -> int | None:
        """The slot of a value in this graph; one of an outer graph gets a slot of its own here."""
        if key in self.slots:
            return self.slots[key]
        value = self.settings.constant(key)
        if value is not None:
            return self._new(key, value)
        there = self.outer.find(key) if self.outer is not None else None
        if there is None:
            return None
        here = self._new(key)
        self.captured.append((there, here))
        return here

    def _source(self, item: Any) -> int:
        if item is None:
            return NOTHING
        if not isinstance(item, Ref):
            return self._new(object(), np.asarray(item))
        found = self.find(item.key)
        # What a failed call would have made is missing; the failure itself is reported.
        return NOTHING if found is None else found

    def _add(self, call: Call) -> None:
        rule = None if call.op in self.settings.expanded else self.settings.rules.get(call.op)
        try:
            if rule is not None:
                self.steps.append(self._step(rule, call))
            elif (body := self.settings.expand(call)) is not None:
                self._inline(body, call)
            else:
                raise Unsupported("no rule")
        except Unsupported as e:
            self.problems.append(Problem(call.op, e.reason, e.hint, (call.where,)))
        except ConversionError as e:
            self.problems += e.problems

    def _inline(self, body: Body, call: Call) -> None:
        """The body's calls as steps of this graph."""
        for key, item in zip(body.inputs, call.inputs, strict=True):
            if key is not None and item is not None:
                self.slots[key] = self._source(item)
        for inner in body.calls:
            self._add(inner)
        for key, item in zip(call.outputs, body.outputs, strict=True):
            if key is not None and item is not None:
                self.slots[key] = self._source(item)

    def _step(self, rule: Rule, call: Call) -> Step:
        sources, forms = self._inputs(rule, call)
        attrs, bodies = self._attributes(rule, call)
        targets = tuple(-1 if key is None else self._new(key) for key in call.outputs)
        run = softmax_in_steps if call.op == "Softmax" and _pinned(call.inputs[0]) else rule.lower
        step = Step(call.op, call.where, run, tuple(sources), attrs, targets, tuple(forms), tuple(bodies))
        if self.settings.adapt_step is not None:
            self.settings.adapt_step(call, step)
        return step

    def _inputs(self, rule: Rule, call: Call) -> tuple[list[int], list[tuple[int, str, str]]]:
        positional = [p for p in rule.params if not p.keyword]
        fixed = [p for p in positional if not p.variadic]
        if len(fixed) == len(positional) and any(item is not None for item in call.inputs[len(fixed) :]):
            raise Unsupported(f"input {len(fixed)} is not supported")
        sources: list[int] = []
        forms: list[tuple[int, str, str]] = []
        for i, item in enumerate(call.inputs):
            p = fixed[i] if i < len(fixed) else positional[-1] if positional else None
            if p is None:
                break
            source = self._source(item)
            if item is None and not p.variadic and p.default is REQUIRED and (call.schema is None or i < 1):
                raise Unsupported(f"input {p.name!r} is missing")
            if p.form and source != NOTHING:
                if self.frame[source] is None:
                    forms.append((i, p.form, p.name))
                else:
                    source = self._new(object(), to_form(self.frame[source], p.form, p.name))
            sources.append(source)
        missing = next((p for p in fixed[len(call.inputs) :] if p.default is REQUIRED), None)
        if missing is not None:
            raise Unsupported(f"input {missing.name!r} is missing")
        return sources, forms

    def _attributes(self, rule: Rule, call: Call) -> tuple[dict[str, Any], list[tuple[str, Plan]]]:
        given = {k: v for k, v in call.attrs.items() if v is not None}
        defaults = call.schema.defaults if call.schema else {}
        attrs: dict[str, Any] = {}
        bodies: list[tuple[str, Plan]] = []
        for p in rule.params:
            if not p.keyword:
                continue
            if p.form == "outputs":
                attrs[p.name] = tuple(key is not None for key in call.outputs)
                continue
            value = given.pop(p.name, None)
            if value is None:
                value = _default(p, defaults)
            if isinstance(value, Body):
                bodies.append((p.name, Compiler(self.settings, self).compile(value.inputs, value.calls, value.outputs)))
            else:
                attrs[p.name] = to_form(value, p.form, p.name) if p.form else value
        for name, value in given.items():
            if rule.takes_any:
                attrs[name] = value
            elif not (name in defaults and same(value, defaults[name])):
                raise Unsupported(f"{name}={value!r} is not supported")
        return attrs, bodies


def _pinned(item: Any) -> bool:
    """Whether scores come out of a Cast to the type that they had: so Attention's definition names its softmax's precision."""
    key = item.key if isinstance(item, Ref) else None
    node = key.producer() if isinstance(key, ir.Value) else None
    if node is None or node.op_type != "Cast" or node.domain or node.inputs[0] is None:
        return False
    return node.inputs[0].dtype == node.attributes["to"].as_int()


def _default(p: Param, defaults: Mapping[str, Any]) -> Any:
    if p.default is not REQUIRED:
        return p.default
    if p.name not in defaults:
        raise Unsupported(f"attribute {p.name!r} is missing")
    return defaults[p.name]


def execute(plan: Plan, frame: list[Any], budget: Budget, adapt: Convert | None) -> tuple[Any, ...]:
    """Run a plan's steps on a frame that has its inputs in their slots; gives the outputs."""
    timed = budget.limits.seconds is not None
    for step, dead in zip(plan.steps, plan.frees, strict=True):
        if timed:
            budget.operator = step.op
            budget.tick()
        perform(step, [frame[i] for i in step.sources], frame, budget, adapt)
        for i in dead:
            frame[i] = None
    return tuple(frame[i] for i in plan.outputs)


def perform(step: Step, args: list[Any], frame: list[Any], budget: Budget, adapt: Convert | None) -> None:
    """Run one step on its arguments and put the results into their slots."""
    budget.operator = step.op
    try:
        for i, form, name in step.forms:
            args[i] = to_form(args[i], form, name)
        if step.bodies:
            inner = {name: Subgraph(body, frame, budget, adapt) for name, body in step.bodies}
            results = step.run(*args, **step.attrs, **inner)
        else:
            results = step.run(*args, **step.attrs)
    except OnnxbridgeError:
        raise
    except Unsupported as e:
        raise ConversionError(DIRECTION, [Problem(step.op, e.reason, e.hint, (step.where,))]) from e
    except MemoryError as e:
        raise LimitError(f"{step.op} asks for more memory than this machine has: {e}") from e
    except Exception as e:
        e.add_note(f"in {step.op} at {step.where}")
        raise
    if not isinstance(results, tuple):
        results = (results,)
    if len(results) < len(step.targets) and any(t > 0 for t in step.targets[len(results) :]):
        raise ConversionError(DIRECTION, [Problem(step.op, f"its rule gives only {len(results)} outputs", "", (step.where,))])
    for target, result in zip(step.targets, results, strict=False):
        if target > 0:
            if type(result) is not np.ndarray and result is not None and not isinstance(result, (list, dict)):
                result = np.asarray(result)
            if adapt is not None:
                result = adapt(result)
            budget.hold(result)
            frame[target] = result


class Subgraph:
    """A subgraph on the values that it sees around it now; called with its inputs it gives its outputs."""

    def __init__(self, plan: Plan, outer: list[Any], budget: Budget, adapt: Convert | None) -> None:
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
        frame, again = self._filled(inputs), self._plan.again
        who = self._budget.operator
        if again is None:
            results = execute(self._plan, frame, self._budget, self._adapt)
        else:
            results = again.run(self._plan, frame, self._budget)
        self._budget.operator = who
        return results

    @property
    def ready(self) -> bool:
        """Whether several trips may be taken at once."""
        return self._plan.again is not None and self._plan.again.ready

    def many(self, inputs: Sequence[Any], course: Course, trips: int) -> Trips | None:
        """Several trips at once, the first with these inputs; None where they have to be taken one by one."""
        again = self._plan.again
        return None if again is None else again.many(self._plan, self._filled(inputs), course, trips, self._budget)

    def _filled(self, inputs: Sequence[Any]) -> list[Any]:
        frame = self._frame.copy()
        for place, value in zip(self._plan.inputs, inputs, strict=True):
            if place > 0:
                frame[place] = value
        return frame


def _declared(item: Any) -> tuple[Any, list[int]]:
    value = item.key if isinstance(item, Ref) else None
    if not isinstance(value, ir.Value) or value.shape is None:
        return (value.dtype.numpy() if isinstance(value, ir.Value) and value.dtype else None), []
    return (value.dtype.numpy() if value.dtype else None), [d if isinstance(d, int) else 0 for d in value.shape]
