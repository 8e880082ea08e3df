"""The compiler of plans: it binds the calls of a graph to rules, and writes out operators that have none by their expansions.

A subgraph is a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import ConversionError, Problem, Unsupported, merge
from onnxbridge.lowering import Body, Call, Ref, same, to_form
from onnxbridge.rules import REQUIRED, Param, Rule, Rules
from onnxbridge.runtime.executor.plan import DIRECTION, NOTHING, Convert, Plan, Step

Constant = Callable[[Hashable], Any]


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
        step = Step(call.op, call.where, rule.lower, tuple(sources), attrs, targets, tuple(forms), tuple(bodies))
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


def _default(p: Param, defaults: Mapping[str, Any]) -> Any:
    if p.default is not REQUIRED:
        return p.default
    if p.name not in defaults:
        raise Unsupported(f"attribute {p.name!r} is missing")
    return defaults[p.name]


def _declared(item: Any) -> tuple[Any, list[int]]:
    value = item.key if isinstance(item, Ref) else None
    if not isinstance(value, ir.Value) or value.shape is None:
        return (value.dtype.numpy() if isinstance(value, ir.Value) and value.dtype else None), []
    return (value.dtype.numpy() if value.dtype else None), [d if isinstance(d, int) else 0 for d in value.shape]
