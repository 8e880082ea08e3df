"""The walker: takes the calls of any framework's graph through a table of rules into a target.

It binds arguments against the source's schema, folds the inputs that a rule needs to know, expands what the target has no rule
for, lets the target name and type the results, and collects every problem before it raises. There is no other walker.
"""

from __future__ import annotations

import difflib
import os
from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from onnxbridge.errors import ConversionError, OnnxbridgeError, Problem, Source, Unsupported, main_line, merge
from onnxbridge.rules import REQUIRED, Param, Rule

Values = MutableMapping[Hashable, Any]
Rules = Mapping[str, Rule]
Resolve = Callable[[Any], Any]


@dataclass(frozen=True)
class Ref:
    """An input that is the result of another call, or an input or weight of the graph; `key` finds it among the values."""

    key: Hashable


@dataclass(frozen=True)
class Schema:
    """What the source's documentation says of an operator: its parameters in order, and the defaults of those that have one.

    `attributes` names those among `params` that are configuration: where one is not given, its default is.
    """

    params: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One operator of any framework's graph.

    `inputs` are positional: `Ref`s, literals, None where omitted, and tuples of these. `attrs` are given by name; a subgraph
    among them is a `Body`. `outputs` are keys for the results, None where nothing uses one.
    """

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Hashable | None, ...]
    where: Source = Source()
    schema: Schema | None = None


@dataclass(frozen=True)
class Body:
    """A graph inside a graph: control flow's branches and bodies, called functions, expansions. Rules get it as a callable."""

    inputs: tuple[Hashable | None, ...]
    calls: Iterable[Call]
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Deferred:
    """A static input that is known only when the model runs: the target brings its value to the rule's form then."""

    value: Any
    form: str = ""
    name: str = ""


class Target(Protocol):
    """What the walker writes into. A class that inherits from it overrides what it does differently."""

    direction: str
    """As in a report's headline: "PyTorch to ONNX"."""
    writer: Any = None
    """What rules that write a file take first."""

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | Deferred | None:
        """The constant behind a value, None where the value is only known when the model runs."""
        return None

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        """Entered around a rule, so that whatever it writes carries the call's name and place."""
        return nullcontext()

    def apply(self, rule: Rule, call: Call, args: list[Any], attrs: dict[str, Any]) -> Any:
        """The results of a rule on its bound arguments: by default, of calling it."""
        return rule.lower(self.writer, *args, **attrs) if rule.writer else rule.lower(*args, **attrs)

    def adopt(self, call: Call, results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Name and type a rule's results, one for each of `call.outputs`."""
        return results

    def body(self, body: Body, rules: Rules, values: Values) -> Any:
        """What a rule gets for a subgraph, which sees `values`: by default, a callable that lowers it each time."""
        return as_function(body, rules, values, self)

    def expand(self, call: Call) -> Body | None:
        """The same operator in simpler operators, None where there is no such expansion.

        Raises:
            Unsupported: where there is more to say than that there is no rule.
        """
        return None


class _Failed:
    """Stands for the results of a call that could not be lowered; calls that consume it are passed over quietly."""


FAILED = _Failed()


class _Skip(Exception):
    """A call depends on one that failed."""


def lower(calls: Iterable[Call], rules: Rules, values: Values, target: Target) -> None:
    """Lower every call into the target, adding the results to `values`.

    All calls are looked at, also behind a failed one.

    Raises:
        ConversionError: with every problem that was met.
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
    """Collects what is in the way: as a context manager it takes the ConversionError of what is done inside; `report` raises."""

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
        """Raise a ConversionError with everything that was found, if anything was."""
        if self.found:
            raise ConversionError(self.direction, merge(self.found)) from self._cause


def _lower_one(
    call: Call, rules: Rules, values: Values, target: Target, resolve: Resolve, static: Callable[[Ref], Any]
) -> tuple[Any, ...]:
    rule = rules.get(call.op)
    refusal: Exception | None = None
    if rule is not None:
        try:
            with target.scope(call):
                args, attrs = bind(rule, call, resolve, static)
                return target.adopt(call, _as_results(target.apply(rule, call, args, attrs), call))
        except Unsupported as e:
            refusal = e
        except (OnnxbridgeError, _Skip):
            raise
        except Exception as e:
            if os.environ.get("ONNXBRIDGE_DEBUG"):
                raise
            refusal = e
    body: Body | None = None
    try:
        body = target.expand(call)
    except Unsupported as e:
        refusal = refusal or e
    if body is not None:
        try:
            with target.scope(call):
                results = as_function(body, rules, values, target)(*_resolve(call.inputs, values))
                return target.adopt(call, _as_results(results, call))
        except ConversionError as e:
            if refusal is None:
                needs = ", ".join(sorted({f"{p.op} ({p.reason})" for p in e.problems}))
                hint = next((p.hint for p in e.problems if p.hint), "")
                refusal = Unsupported(f"no rule, and its expansion needs {needs}", hint)
        except Unsupported as e:  # the target cannot name or type the results
            refusal = refusal or e
    if refusal is None:
        refusal = Unsupported("no rule", _near(call.op, rules))
    raise ConversionError(target.direction, [_problem(call, refusal)]) from refusal


def _problem(call: Call, error: Exception) -> Problem:
    if isinstance(error, Unsupported):
        return Problem(call.op, error.reason, error.hint, (call.where,))
    text = main_line(error)
    return Problem(call.op, f"its rule failed: {type(error).__name__}: {text}", "", (call.where,))


def _near(op: str, rules: Rules) -> str:
    names = list(rules)
    base = op.split(".")[0]
    near = [n for n in names if n.split(".")[0] == base] or difflib.get_close_matches(op, names, n=3, cutoff=0.75)
    return f"there are rules for {', '.join(near[:4])}" if near else ""


def _as_results(result: Any, call: Call) -> tuple[Any, ...]:
    """A tuple is several outputs; anything else, a sequence's list included, is one."""
    results = result if isinstance(result, tuple) else (result,)
    wanted = max((i + 1 for i, key in enumerate(call.outputs) if key is not None), default=0)
    if len(results) < wanted:
        raise Unsupported(f"output {wanted} is used, and the rule gives {len(results)}")
    return results[: len(call.outputs)]


def as_function(body: Body, rules: Rules, values: Values, target: Target) -> Callable[..., tuple[Any, ...]]:
    """The body as a callable on the target's values; it sees the values around it."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        inner: Values = ChainMap({k: v for k, v in zip(body.inputs, inputs, strict=False) if k is not None}, values)
        lower(body.calls, rules, inner, target)
        return tuple(_resolve(body.outputs, inner))

    return run


def _resolve(item: Any, values: Values) -> Any:
    """Put the target's values where `item` has `Ref`s, through tuples and lists."""
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

    `resolve` gives what stands for an input or a `Body` in the target; `static` the constant behind a value, None where there
    is none, or a `Deferred`, which then is the argument.

    Raises:
        Unsupported: if an argument that the rule does not name is away from its default, or a static one is not known.
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
    # All names before any value: what is wrong with a call is found where one of its inputs could not be lowered, too.
    matched = [(p, *_take(p, given, defaults)) for p in rule.params if not p.variadic]
    for name, value in given.items():
        if not rule.takes_any and value is not None and not (name in defaults and same(value, defaults[name])):
            what = f"input {name!r}" if isinstance(value, Ref) else f"{name}={_short(value)}"
            raise Unsupported(f"{what} is not supported")
    args: list[Any] = []
    attrs: dict[str, Any] = dict(given) if rule.takes_any else {}
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
    """What is given for a parameter, or its default; and whether it is given."""
    name = p.name if p.name in given else p.name.rstrip("_")
    value = given.pop(name, None)
    if value is not None:
        return value, True
    if p.default is not REQUIRED:
        return p.default, False
    if name not in defaults and not p.form:
        raise Unsupported(f"{'attribute' if p.keyword else 'input'} {name!r} is missing")
    return defaults.get(name), False


def same(a: Any, b: Any) -> bool:
    """Whether two attribute values are equal, lists and tuples alike."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _like_default(value: Any, default: Any) -> Any:
    """An attribute's value in the type of the rule's default: frameworks write True as 1, (3,) as 3, 1.0 as 1."""
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
    """The value of a parameter that the rule must know when converting."""

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
    return replace(value, form=p.form, name=p.name) if isinstance(value, Deferred) else to_form(value, p.form, p.name)


def to_form(value: Any, form: str, name: str) -> Any:
    """A known value in the form that a rule's annotation asks for; None stays None."""
    if value is None or form == "array":
        return None if value is None else np.asarray(value)
    if form == "str":
        return str(np.asarray(value).item()) if not isinstance(value, str) else value
    array = np.asarray(value)
    if form in ("int", "float", "bool"):
        if array.size != 1:
            raise Unsupported(f"{name!r} must hold one element, it holds {array.size}")
        return {"int": int, "float": float, "bool": bool}[form](array.reshape(()).item())
    each = int if form == "ints" else float
    return tuple(each(v) for v in array.reshape(-1).tolist())


def resolve(items: Sequence[Any], values: Values) -> list[Any]:
    """The target's values behind the outputs of a graph, after `lower` has succeeded."""
    return [_resolve(item, values) for item in items]
