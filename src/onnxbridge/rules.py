"""Rules: how one operator of a source is written in a target, and the tables that hold them.

A rule is a plain function with the source operator's own parameters: inputs positional, attributes keyword-only. Where the
target is a file being written, its writer comes first. What a rule needs beyond values it says by a type:

    Ints Floats Int Float Bool Str Array    an input that must be known when converting; the walker folds it or reports it
    Outputs                                 which of the outputs are used, as a tuple of bools (keyword-only)

What whoever runs a rule must know of its operator is the rule's `kind`, given where it is registered, as in
`@rule("Reshape", kind="view")`; one for all operators of the registration:

    view    the first result may be the memory of the first input, seen in another way
    shape   the results follow from the shapes of the inputs, whatever their values
    random  two runs on the same inputs give different results
    bits    the result follows from the bits of the first input, so from its declared element type
    move    Core ML: values are moved and not changed, so they keep their element type
    mixed   Core ML: a constant factor may be of another element type than the result
"""

from __future__ import annotations

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


@dataclass(frozen=True)
class Static:
    """Marks a parameter whose value the walker must know when converting, and says in which form the rule wants it."""

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
    """How one source operator is lowered.

    `limits` says what it does not cover, `needs` the least target ("iOS17"). `writer`: the target's writer comes first.
    `plain`: `lower` is a library's own function, which takes the inputs positionally and no attributes. `kind` is one of those
    that stand at the head of this file, "" for most.
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
    def takes_any(self) -> bool:
        """Whether the rule takes every attribute there is (it ends in `**attrs`)."""
        kinds = [] if self.plain else [p.kind for p in inspect.signature(self.lower).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds


def _form(annotation: Any) -> str:
    """The static form that an annotation asks for, "" for none; `Ints | None` counts as `Ints`."""
    for part in (annotation, *typing.get_args(annotation)):
        for mark in getattr(part, "__metadata__", ()):
            if isinstance(mark, Static):
                return mark.form
    return ""


class Rules(Mapping[str, Rule]):
    """The table of one plugin's rules; calling it is the decorator that registers a rule.

    `name` is the plugin's ("frontends.pytorch"), by which third-party packages add rules to it. With `package`, the
    package's modules are imported at the first look-up, so that a new file in `ops/` is found by being there.
    `writer` tells that every rule takes the target's writer first.
    """

    def __init__(self, name: str, *, package: str = "", writer: bool = False) -> None:
        self.name = name
        self._package = package
        self._writer = writer
        self._rules: dict[str, Rule] = {}
        self._loaded = not package

    def __call__(self, *ops: str, limits: str = "", needs: str = "", kind: str = "") -> Callable[[F], F]:
        """Register the decorated function as the rule of these operators."""

        def register(function: F) -> F:
            if not function.__module__.startswith("onnxbridge."):
                self.load()  # a rule that is there already is reported at the line that adds the second one
            for op in ops:
                self._add(Rule(op, function, limits, needs, self._writer, kind=kind))
            return function

        return register

    def table(self, **ops: Callable[..., Any]) -> None:
        """Register operators without attributes that are one library call as it stands: inputs go in positionally."""
        for op, function in ops.items():
            self._add(Rule(op, function, plain=True))

    def _add(self, rule: Rule) -> None:
        there = self._rules.get(rule.op)
        if there is not None and there.lower is not rule.lower:
            raise ValueError(
                f"{self.name}: two rules for {rule.op}: {_place(there.lower)} and {_place(rule.lower)}"
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

    def __getitem__(self, op: str) -> Rule:
        return self.load()._rules[op]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.load()._rules))

    def __len__(self) -> int:
        return len(self.load()._rules)


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"
