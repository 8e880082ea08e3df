"""Rules, each of which converts one source operator to a target, and tables of rules.

A rule is a plain function with the source operator's own parameters: inputs positional, attributes keyword-only. Where the
target is a file being written, its writer comes first. Annotations mark parameters that are not ordinary values:

    Ints Floats Int Float Bool Str Array    an input that must be constant when converting; the walker folds or reports it
    Outputs                                 which of the outputs are used, as a tuple of bools (keyword-only)

A rule's `kind` is given where it is registered, as in `@rule("Reshape", kind="view")`:

    view    the first result may be a view of the first input's memory
    shape   the results depend on the shapes of the inputs only, not on their values
    random  two runs on the same inputs give different results
    bits    the result depends on the bits of the first input, and so on its declared element type
    move    Core ML: values are moved and not changed, so they keep their element type
    mixed   Core ML: a constant factor may have another element type than the result
    weights Core ML: the operator decompresses weights, once when a model is loaded
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, TypeVar

import numpy as np

from onnxbridge.entry_points import load_extra_rules
from onnxbridge.errors import Unsupported


@dataclass(frozen=True)
class Static:
    """Marks a parameter that must be constant when converting; `form` is the Python type that the rule gets."""

    form: str


Ints = Annotated[tuple[int, ...], Static("ints")]
Floats = Annotated[tuple[float, ...], Static("floats")]
Int = Annotated[int, Static("int")]
Float = Annotated[float, Static("float")]
Bool = Annotated[bool, Static("bool")]
Str = Annotated[str, Static("str")]
Array = Annotated[np.ndarray[Any, Any], Static("array")]
Outputs = Annotated[tuple[bool, ...], Static("outputs")]

REQUIRED: Any = inspect.Parameter.empty
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Param:
    """One parameter of a rule: an input or (keyword-only) an attribute."""

    name: str
    default: Any
    keyword: bool
    variadic: bool
    form: str


@dataclass(frozen=True)
class Rule:
    """The rule of one source operator.

    Attributes:
        limits: what it does not cover.
        needs: the least version of the target: "iOS17".
        writer: whether `lower` takes the target's writer first.
        plain: whether `lower` is a library function that takes the inputs positionally and no attributes.
        kind: one of the kinds in this module's docstring, "" for most rules.
    """

    op: str
    lower: Callable[..., Any]
    limits: str = ""
    needs: str = ""
    writer: bool = False
    plain: bool = False
    kind: str = ""

    @cached_property
    def params(self) -> tuple[Param, ...]:
        """The rule's parameters without its writer, read from its signature once."""
        if self.plain:
            return (Param("inputs", REQUIRED, keyword=False, variadic=True, form=""),)
        found = []
        for p in list(inspect.signature(self.lower, eval_str=True).parameters.values())[self.writer :]:
            if p.kind is not p.VAR_KEYWORD:
                found.append(Param(p.name, p.default, p.kind is p.KEYWORD_ONLY, p.kind is p.VAR_POSITIONAL, _form(p.annotation)))
        return tuple(found)

    @cached_property
    def accepts_any_attribute(self) -> bool:
        """Whether the rule accepts all attributes (it ends in `**attrs`)."""
        kinds = [] if self.plain else [p.kind for p in inspect.signature(self.lower).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds


def _form(annotation: Any) -> str:
    """The form of a `Static` annotation, "" for others; `Ints | None` counts as `Ints`."""
    for part in (annotation, *typing.get_args(annotation)):
        for marker in getattr(part, "__metadata__", ()):
            if isinstance(marker, Static):
                return marker.form
    return ""


class Rules(Mapping[str, Rule]):
    """The table of one plugin's rules; calling it is the decorator that registers a rule.

    `name` is the plugin's ("frontends.pytorch"), by which third-party packages add rules to it. With `package`, all modules of
    that package are imported at the first look-up. With `writer`, every rule takes the target's writer first.
    """

    def __init__(self, name: str, *, package: str = "", writer: bool = False) -> None:
        self.name = name
        self._package = package
        self._writer = writer
        self._rules: dict[str, Rule] = {}
        self._unsupported: dict[str, tuple[str, str]] = {}
        self._loaded = not package

    def __call__(self, *ops: str, limits: str = "", needs: str = "", kind: str = "") -> Callable[[F], F]:
        """Register the decorated function as the rule of these operators."""

        def register(function: F) -> F:
            if not function.__module__.startswith("onnxbridge."):
                self.load()  # so that a duplicate is reported where the second rule is registered
            for op in ops:
                self._add(Rule(op, function, limits, needs, self._writer, kind=kind))
            return function

        return register

    def table(self, **ops: Callable[..., Any]) -> None:
        """Register operators without attributes that are one library call each, with the inputs as positional arguments."""
        for op, function in ops.items():
            self._add(Rule(op, function, plain=True))

    def unsupported(self, *ops: str, reason: str, hint: str = "") -> None:
        """Say why there is no rule for these operators: conversions that meet one and docs/coverage.md show it."""
        self._unsupported |= dict.fromkeys(ops, (reason, hint))

    def reasons(self) -> dict[str, str]:
        """Why there is no rule, by operator, for those that have a reason of their own."""
        self.load()
        return {op: reason for op, (reason, _) in sorted(self._unsupported.items()) if op not in self._rules}

    def _add(self, rule: Rule) -> None:
        known = self._rules.get(rule.op)
        if known is not None and known.lower is not rule.lower:
            raise ValueError(
                f"{self.name}: two rules for {rule.op}: {_qualified_name(known.lower)} and {_qualified_name(rule.lower)}"
            )
        self._rules[rule.op] = rule

    def load(self) -> Rules:
        """Import the plugin's own rule modules, then those that installed packages add to it."""
        if not self._loaded:
            self._loaded = True
            package = importlib.import_module(self._package)
            for module in sorted(m.name for m in pkgutil.iter_modules(package.__path__)):
                importlib.import_module(f"{self._package}.{module}")
            load_extra_rules(self.name)
        return self

    def __delitem__(self, op: str) -> None:
        """Unregister an operator's rule, so that another one can be registered: when a notebook's cell runs again."""
        del self.load()._rules[op]

    def __getitem__(self, op: str) -> Rule:
        return self.load()._rules[op]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.load()._rules))

    def __len__(self) -> int:
        return len(self.load()._rules)


def no_rule(op: str, rules: Mapping[str, Rule]) -> Unsupported:
    """The error for an operator without a rule: the reason, or the names of similar operators that have one."""
    if isinstance(rules, Rules) and op in rules.load()._unsupported:
        return Unsupported(*rules._unsupported[op])
    names = list(rules)
    base = op.split(".")[0]
    similar = [n for n in names if n.split(".")[0] == base] or difflib.get_close_matches(op, names, n=3, cutoff=0.75)
    return Unsupported("no rule", f"there are rules for {', '.join(similar[:4])}" if similar else "")


def _qualified_name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
