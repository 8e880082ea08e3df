"""The walker: lowers the calls of any framework's graph into a target by a table of rules.

It binds arguments by the source's schema, folds inputs that a rule needs as constants, decomposes operators without a rule, lets
the target name and type the results, and collects all problems before it raises.
"""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from onnxbridge.errors import ConversionError, OnnxbridgeError, Problem, SourceLocation, Unsupported, first_line, merge
from onnxbridge.rules import REQUIRED, Param, Rule, no_rule

Values = MutableMapping[Hashable, Any]
Rules = Mapping[str, Rule]
Resolve = Callable[[Any], Any]


@dataclass(frozen=True)
class Ref:
    """A reference to the result of another call, or to an input or weight of the graph, by its key among the values."""

    key: Hashable


@dataclass(frozen=True)
class Schema:
    """The signature of a source operator: its parameters in order, and defaults by name."""

    params: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One operator of any framework's graph.

    `inputs` are positional: `Ref`s, literals, None where omitted, and tuples of these. `attrs` are named; a subgraph among them
    is a `Body`. `outputs` are the keys of the results, None for an unused one.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Hashable | None, ...]
    location: SourceLocation = SourceLocation()
    schema: Schema | None = None


@dataclass(frozen=True)
class Body:
    """A subgraph: a branch or body of control flow, a function, or a decomposition. Rules get it as a callable."""

    inputs: tuple[Hashable | None, ...]
    calls: Iterable[Call]
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Deferred:
    """A static input that is known only when the model runs; the target converts it to `form` then."""

    value: Any
    form: str = ""
    name: str = ""


class Target(Protocol):
    """What the walker writes to. A subclass overrides what it does differently."""

    direction: str
    """The direction in the headline of error messages: "PyTorch to ONNX"."""
    writer: Any = None
    """The first argument of rules that write a file."""

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | Deferred | None:
        """The constant that a value holds, None where it is known only when the model runs."""
        return None

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        """A context around a rule, in which everything written gets the call's name and source location."""
        return nullcontext()

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> Any:
        """The results of a rule on its bound arguments; by default, the rule is called."""
        return rule.lower(self.writer, *args, **attrs) if rule.writer else rule.lower(*args, **attrs)

    def bind_outputs(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Name and type a rule's results, one for each of `call.outputs`."""
        return results

    def body(self, body: Body, rules: Rules, values: Values) -> Any:
        """The argument that a rule gets for a subgraph, whose calls may use `values`; by default, a callable that lowers it."""
        return BodyFunction(body, rules, values, self)

    def decompose(self, call: Call) -> Body | None:
        """The decomposition of an operator without a rule, None where there is none.

        Raises:
            Unsupported: with a more specific reason than that there is no rule.
        """
        return None

    def problem(self, call: Call, error: Exception) -> Problem:
        """The problem that is reported for a call whose rule, or whose look-up, raised this error."""
        if isinstance(error, Unsupported):
            return Problem(call.op, error.reason, error.hint, (call.location,))
        reason = f"its rule failed: {type(error).__name__}: {self.main_line(error)}"
        return Problem(call.op, reason, "", (call.location,))

    def main_line(self, error: Exception) -> str:
        """The line of an error's message that gives the reason: by default, the first."""
        return first_line(error)


class _Failed:
    """Marks the results of a call that could not be lowered; its consumers are skipped without a report."""


FAILED = _Failed()


class _Skip(Exception):
    """Raised for a call that depends on a failed one."""


def lower(calls: Iterable[Call], rules: Rules, values: Values, target: Target) -> None:
    """Lower all calls into the target and add their results to `values`. It goes on after a call that fails.

    Raises:
        ConversionError: with the problems of all calls.
    """

    def resolve(item: Any) -> Any:
        return target.body(item, rules, values) if isinstance(item, Body) else _resolve(item, values)

    def static(ref: Ref) -> Any:
        return target.static(ref.key, _resolve(ref, values))

    problems = Problems(target.direction)
    for call in calls:
        results: tuple[Any, ...] = (FAILED,) * len(call.outputs)
        with problems, suppress(_Skip):
            results = _lower_one(call, rules, values, target, resolve, static)
        for key, result in zip(call.outputs, results, strict=False):
            if key is not None:
                values[key] = result
    problems.report()


class Problems:
    """Collects problems: as a context manager it catches ConversionError; `report` raises one with all problems."""

    def __init__(self, direction: str) -> None:
        self.direction = direction
        self.found: list[Problem] = []
        self._cause: BaseException | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        if not isinstance(error, ConversionError):
            return False
        self.found += error.problems
        self._cause = self._cause or error.__cause__ or error
        return True

    def report(self) -> None:
        """Raise a ConversionError with all problems, if there are any."""
        if self.found:
            raise ConversionError(self.direction, merge(self.found)) from self._cause


def _lower_one(
    call: Call, rules: Rules, values: Values, target: Target, resolve: Resolve, static: Callable[[Ref], Any]
) -> tuple[Any, ...]:
    rule = rules.get(call.op)
    reason: Exception | None = None
    if rule is not None:
        try:
            with target.scope(call):
                args, attrs = bind(rule, call, resolve, static)
                return target.bind_outputs(call, _as_results(target.apply(rule, call, args, attrs), call))
        except Unsupported as e:
            reason = e
        except (OnnxbridgeError, _Skip):
            raise
        except Exception as e:
            if os.environ.get("ONNXBRIDGE_DEBUG"):
                raise
            reason = e
    body: Body | None = None
    try:
        body = target.decompose(call)
    except Unsupported as e:
        reason = reason or e
    if body is not None:
        try:
            with target.scope(call):
                results = BodyFunction(body, rules, values, target)(*_resolve(call.inputs, values))
                return target.bind_outputs(call, _as_results(results, call))
        except ConversionError as e:
            if reason is None:
                needs = ", ".join(sorted({f"{p.op} ({p.reason})" for p in e.problems}))
                hint = next((p.hint for p in e.problems if p.hint), "")
                reason = Unsupported(f"no rule, and its decomposition needs {needs}", hint)
        except Unsupported as e:
            reason = reason or e
        except (OnnxbridgeError, _Skip):
            raise
        except Exception as e:  # the target cannot name or type the results
            reason = reason or e
    if reason is None:
        reason = no_rule(call.op, rules)
    raise ConversionError(target.direction, [target.problem(call, reason)]) from reason


def _as_results(result: Any, call: Call) -> tuple[Any, ...]:
    """The outputs of a rule: a tuple is several, anything else is one, the list of a sequence included."""
    results = result if isinstance(result, tuple) else (result,)
    wanted = max((i + 1 for i, key in enumerate(call.outputs) if key is not None), default=0)
    if len(results) < wanted:
        raise Unsupported(f"output {wanted} is used, but the rule returns {len(results)}")
    return results[: len(call.outputs)]


class BodyFunction:
    """A body as a callable on the target's values; its calls may also use `values`."""

    def __init__(self, body: Body, rules: Rules, values: Values, target: Target) -> None:
        self.inputs = body.inputs
        self._body, self._rules, self._values, self._target = body, rules, values, target

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        own = {k: v for k, v in zip(self.inputs, inputs, strict=False) if k is not None}
        inner: Values = ChainMap(own, self._values)
        lower(self._body.calls, self._rules, inner, self._target)
        return tuple(_resolve(self._body.outputs, inner))


def _resolve(item: Any, values: Values) -> Any:
    """Replace each `Ref` in `item` by the target's value, in nested tuples and lists too."""
    if isinstance(item, Ref):
        value = values[item.key]
        if value is FAILED:
            raise _Skip
        return value
    if isinstance(item, (tuple, list)):
        return type(item)(_resolve(i, values) for i in item)
    return item


def bind(rule: Rule, call: Call, resolve: Resolve, static: Callable[[Ref], Any]) -> tuple[list[Any], dict[str, Any]]:
    """The positional and keyword arguments with which the rule is called.

    `resolve` returns the target's value of an input or a `Body`; `static` returns the constant that a value holds, None where it
    is not constant, or a `Deferred`, which becomes the argument.

    Raises:
        Unsupported: if an argument that the rule does not have differs from its default, or a static input is not constant.
    """
    names = call.schema.params if call.schema else ()
    defaults = call.schema.defaults if call.schema else {}
    positional = [p for p in rule.params if not p.keyword]
    variadic = next((p for p in positional if p.variadic), None)
    given: dict[str, Any] = dict(call.attrs)
    rest: list[Any] = []
    for i, item in enumerate(call.inputs):
        if variadic is not None and i >= len(positional) - 1:
            rest.append(item)
        elif i < len(names):
            given[names[i]] = item
        elif i < len(positional):
            given[positional[i].name] = item
        elif item is not None:
            raise Unsupported(f"input {i} is not supported")
    # All names before any value: problems of a call are found even if one of its inputs could not be lowered.
    matched = [(p, *_take(p, given, defaults)) for p in rule.params if not p.variadic]
    for name, value in given.items():
        if not rule.accepts_any_attribute and value is not None and not (name in defaults and same_value(value, defaults[name])):
            what = f"input {name!r}" if isinstance(value, Ref) else f"{name}={_short(value)}"
            raise Unsupported(f"{what} is not supported")
    args: list[Any] = []
    attrs: dict[str, Any] = dict(given) if rule.accepts_any_attribute else {}
    for p, value, is_given in matched:
        if p.form == "outputs":
            value = tuple(key is not None for key in call.outputs)
        elif is_given and p.form and not isinstance(value, Body):
            value = _static(p, value, static)
        elif is_given:
            value = _like_default(resolve(value), p.default) if p.keyword else resolve(value)
        if p.keyword:
            attrs[p.name] = value
        else:
            args.append(value)
    return args + [resolve(item) for item in rest], attrs


def _take(p: Param, given: dict[str, Any], defaults: Mapping[str, Any]) -> tuple[Any, bool]:
    """The value of a parameter or its default, and whether it was passed."""
    name = p.name if p.name in given else p.name.rstrip("_")
    value = given.pop(name, None)
    if value is not None:
        return value, True
    if p.default is not REQUIRED:
        return p.default, False
    if name not in defaults and not p.form:
        raise Unsupported(f"{'attribute' if p.keyword else 'input'} {name!r} is missing")
    return defaults.get(name), False


def same_value(a: Any, b: Any) -> bool:
    """Whether two attribute values are equal; a list equals a tuple with the same elements."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _like_default(value: Any, default: Any) -> Any:
    """An attribute's value converted to the type of the rule's default: frameworks write True as 1, (3,) as 3, 1.0 as 1."""
    if isinstance(default, bool) and isinstance(value, (int, np.integer)):
        return bool(value)
    if isinstance(default, float) and isinstance(value, int):
        return float(value)
    if isinstance(value, list):
        return tuple(value)
    if isinstance(default, tuple) and not isinstance(value, tuple):
        return (value,)
    return value


_MUST_BE_KNOWN = "make it a constant, or give the input a fixed shape"


def _static(p: Param, item: Any, static: Callable[[Ref], Any]) -> Any:
    """The value of a parameter that must be constant when converting."""

    def known(item: Any) -> Any:
        if isinstance(item, (tuple, list)):
            return [known(i) for i in item]
        if not isinstance(item, Ref):
            return item
        array = static(item)
        if array is None:
            raise Unsupported(f"input {p.name!r} must be known when converting", _MUST_BE_KNOWN)
        return array

    value = known(item)
    return replace(value, form=p.form, name=p.name) if isinstance(value, Deferred) else coerce(value, p.form, p.name)


def coerce(value: Any, form: str, name: str) -> Any:
    """A constant in the form of a rule's annotation; None stays None."""
    if value is None or form == "array":
        return None if value is None else np.asarray(value)
    if form == "str":
        return str(np.asarray(value).item()) if not isinstance(value, str) else value
    array = np.asarray(value)
    if form in ("int", "float", "bool"):
        if array.size != 1:
            raise Unsupported(f"{name!r} must have one element, it has {array.size}")
        return {"int": int, "float": float, "bool": bool}[form](array.reshape(()).item())
    each = int if form == "ints" else float
    return tuple(each(v) for v in array.reshape(-1).tolist())


def resolve(items: Sequence[Any], values: Values) -> list[Any]:
    """The target's values of a graph's outputs, after `lower` has succeeded."""
    return [_resolve(item, values) for item in items]
