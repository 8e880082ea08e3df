"""The compiler of plans: the target of the walker in which values are slots, and the call of a rule becomes a step.

A subgraph is a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxbridge.lowering import FAILED, Body, Call, Deferred, Ref, Target, Values, lower, resolve
from onnxbridge.rules import Rule
from onnxbridge.runtime.executor.plan import DIRECTION, NOTHING, Convert, Plan, Step

Constant = Callable[[Hashable], Any]


@dataclass(frozen=True)
class Settings:
    """What all plans of a model share: the rules, how constants are made, and hooks for steps and results."""

    rules: Mapping[str, Rule]
    constant: Constant
    decompose: Callable[[Call], Body | None]
    adapt_step: Callable[[Call, Step], None] | None = None
    adapt_result: Convert | None = None


class Slot(int):
    """A value of a plan: the index of its slot. -1 is a result that nothing uses."""


class _Slots(dict[Hashable, Any]):
    """The slots of a graph's values. A constant, or a value of a graph around it, gets a slot when a call first uses it."""

    def __init__(self, compiler: Compiler, outer: Values | None) -> None:
        super().__init__()
        self._compiler = compiler
        self._outer = outer

    def __missing__(self, key: Hashable) -> Any:
        value = self._compiler.settings.constant(key)
        if value is None:
            if self._outer is None:
                raise KeyError(key)
            there = self._outer[key]
            if there is FAILED:
                return FAILED
        self[key] = here = self._compiler.new(value)
        if value is None:
            self._compiler.captured.append((there, here))
        return here


class Compiler(Target):
    """Compiles one graph; `outer` are the slots of the graph around it."""

    direction = DIRECTION

    def __init__(self, settings: Settings, outer: Values | None = None) -> None:
        self.settings = settings
        self.slots = _Slots(self, outer)
        self.frame: list[Any] = [None]
        self.captured: list[tuple[int, int]] = []
        self.steps: list[Step] = []

    def compile(self, inputs: Sequence[Hashable | None], calls: Iterable[Call], outputs: Sequence[Any]) -> Plan:
        """The plan of a graph.

        Raises:
            ConversionError: with every operator that cannot be run.
        """
        self.slots |= {key: self.new() for key in inputs if key is not None}
        slots = tuple(-1 if key is None else self.slots[key] for key in inputs)
        lower(calls, self.settings.rules, self.slots, self)
        found = tuple(NOTHING if slot is None else slot for slot in resolve(outputs, self.slots))
        return Plan(self.frame, self.steps, slots, found, self.captured, tuple(map(_declared, outputs))).pruned(found)

    def new(self, value: Any = None) -> Slot:
        """A new slot, with a value if it is a constant's."""
        self.frame.append(value)
        return Slot(len(self.frame) - 1)

    def static(self, key: Hashable, value: Any) -> Any:
        constant = self.frame[value]
        return Deferred(value) if constant is None else constant

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> tuple[Slot, ...]:
        while len(args) > len(call.inputs) and args[-1] is None:
            args.pop()
        forms = tuple((i, a.form, a.name) for i, a in enumerate(args) if isinstance(a, Deferred))
        sources = tuple(self._source(a) for a in args)
        bodies = tuple((name, a) for name, a in attrs.items() if isinstance(a, Plan))
        plain = {name: a for name, a in attrs.items() if not isinstance(a, Plan)}
        targets = tuple(Slot(-1) if key is None else self.new() for key in call.outputs)
        step = Step(call.op, call.location, rule.lower, sources, plain, targets, forms, bodies, kind=rule.kind)
        if self.settings.adapt_step is not None:
            self.settings.adapt_step(call, step)
        self.steps.append(step)
        return targets

    def _source(self, argument: Any) -> int:
        if isinstance(argument, Deferred):
            return int(argument.value)
        if isinstance(argument, Slot):
            return argument
        return NOTHING if argument is None else self.new(argument)

    def body(self, body: Body, rules: Mapping[str, Rule], values: Values) -> Plan:
        return Compiler(self.settings, values).compile(body.inputs, body.calls, body.outputs)

    def decompose(self, call: Call) -> Body | None:
        return self.settings.decompose(call)


def _declared(item: Any) -> tuple[Any, list[int]]:
    value = item.key if isinstance(item, Ref) else None
    if not isinstance(value, ir.Value) or value.shape is None:
        return (value.dtype.numpy() if isinstance(value, ir.Value) and value.dtype else None), []
    return (value.dtype.numpy() if value.dtype else None), [d if isinstance(d, int) else 0 for d in value.shape]
