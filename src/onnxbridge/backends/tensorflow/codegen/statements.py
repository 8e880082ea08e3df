"""Statements that build a model, as people write them: one variable is reused for the main value, blocks have a comment."""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from onnxbridge.backends.tensorflow.codegen.expressions import Expressions
from onnxbridge.backends.tensorflow.codegen.operator_layers import OperatorClasses
from onnxbridge.backends.tensorflow.functional.model import BuiltCall
from onnxbridge.formats.python_source.identifiers import identifier

_TEMPORARIES = ("x", "y", "z")
"""Variables for values, each reused once its value is not used any more."""
_MERGES = ("Add", "Concatenate")


class Statements:
    """The statements for the calls that the outputs depend on; `inputs` are symbolic tensors with their preferred names."""

    def __init__(
        self, calls: Sequence[BuiltCall], inputs: Sequence[tuple[Any, str]], outputs: Sequence[Any], reserved: Collection[str]
    ) -> None:
        self._names: dict[int, str] = {}
        self._reserved = {*reserved, *_TEMPORARIES}
        self.classes = OperatorClasses({*reserved, *dir(builtins)})
        self.expressions = Expressions(
            lambda tensor: self._names[id(tensor)],
            lambda call: self.classes.name(call.layer, call.inputs),
        )
        for tensor, name in inputs:
            self._names[id(tensor)] = self._new(name)
        self.calls = _needed(calls, outputs)
        self._last = {id(t): at for at, call in enumerate(self.calls) for t in _tensors(call)}
        self._last |= {id(t): len(self.calls) for t in outputs}
        self._holds: dict[str, int] = {}
        self._repeated = _called_repeatedly(self.calls)
        self._variables: dict[int, str] = {}

    def lines(self) -> list[str]:
        """The statements, with an empty line and a comment where another block of the source begins."""
        found: list[str] = []
        block, after_merge = "", False
        for at, call in enumerate(self.calls):
            scope = _block(call.layer.name) if call.layer is not None and call.layer.weights else block
            if scope != block:
                found += ["", f"# {scope}"] if scope else [""]
            elif after_merge and not scope:
                found.append("")
            block, after_merge = scope, call.kind in _MERGES
            found += self._statement(at, call)
        return found

    def name(self, tensor: Any) -> str:
        """The variable of an output."""
        return self._names[id(tensor)]

    def _statement(self, at: int, call: BuiltCall) -> Iterator[str]:
        if id(call.layer) in self._repeated:
            if id(call.layer) not in self._variables:
                variable = self._variables[id(call.layer)] = self._new(call.layer.name.rpartition(".")[2])
                yield f"{variable} = {self.expressions.layer(call)}"
            text = f"{self._variables[id(call.layer)]}({self.expressions.arguments(call)})"
        else:
            text = self.expressions.call(call)
        used = [id(t) in self._last for t in call.results]
        if call.several and sum(used) == 1 and not call.kind[0].isupper():
            text, targets = f"{text}[{used.index(True)}]", [self._target(call.results[used.index(True)], at, call)]
        else:
            targets = [self._target(t, at, call) if is_used else "_" for t, is_used in zip(call.results, used, strict=True)]
        yield f"{', '.join(targets)}{',' if call.several and len(targets) == 1 and '[' not in text[-4:] else ''} = {text}"

    def _target(self, tensor: Any, at: int, call: BuiltCall) -> str:
        """The variable that is assigned to: one that is free, else a new one, named after the layer."""
        free = [v for v in _TEMPORARIES if v not in self._holds or self._last[self._holds[v]] <= at]
        if free:
            name = free[0]
            self._holds[name] = id(tensor)
        else:
            name = self._new(call.kind.removeprefix("ops.") if call.layer is None else call.layer.name)
        self._names[id(tensor)] = name
        return name

    def _new(self, name: str) -> str:
        found = identifier(name, self._reserved)
        self._reserved.add(found)
        return found


def _needed(calls: Sequence[BuiltCall], outputs: Sequence[Any]) -> list[BuiltCall]:
    """The calls that the outputs depend on."""
    wanted, found = {id(t) for t in outputs}, []
    for call in reversed(calls):
        if any(id(t) in wanted for t in call.results):
            wanted.update(id(t) for t in _tensors(call))
            found.append(call)
    return found[::-1]


def _tensors(call: BuiltCall) -> Iterator[Any]:
    """The symbolic tensors that a call reads."""
    for value in (*call.inputs, *call.named.values()):
        yield from (v for v in (value if isinstance(value, (list, tuple)) else [value]) if hasattr(v, "_keras_history"))


def _called_repeatedly(calls: Sequence[BuiltCall]) -> set[int]:
    """The layers that are called more than once."""
    layers = [id(call.layer) for call in calls if call.layer is not None]
    return {layer for layer in layers if layers.count(layer) > 1}


def _block(name: str) -> str:
    """The module of the source that a layer belongs to, by the path that is its name: "layer1.0" of "layer1.0.conv1"."""
    scope = name.rpartition(".")[0]
    return scope if re.fullmatch(r"[\w.]+", scope, re.ASCII) else ""
