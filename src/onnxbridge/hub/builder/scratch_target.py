"""A lowering target that decomposes a single call into nodes, which the caller inserts into a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.ir import fold
from onnxbridge.lowering import Call, Target, Values, lower
from onnxbridge.rules import Rule

Known = Callable[[Any], np.ndarray[Any, Any] | None]


class IdentityValues(dict[Any, Any]):
    """A mapping that returns each key: hub values are their own values."""

    def __missing__(self, key: Any) -> Any:
        return key


class ScratchTarget(Target):
    """Writes through a `Builder`. `known` returns the array of a constant value; `named`: new values are named after the call."""

    writer: Builder

    def __init__(self, direction: str, writer: Builder, known: Known = fold.constant_array, *, named: bool = True) -> None:
        self.direction = direction
        self.writer = writer
        self._known = known
        self._named = named

    def static(self, key: Hashable, value: Any) -> np.ndarray[Any, Any] | None:
        return self._known(value)

    def scope(self, call: Call) -> AbstractContextManager[Any]:
        return self.writer.scope(call.op, call.location) if self._named else nullcontext()

    def write(self, call: Call, rules: Mapping[str, Rule], values: Values | None = None) -> tuple[Any, ...]:
        """Lower a call whose keys are hub values; returns its results, None for unused ones.

        `values` maps its inputs if they are not the hub values themselves.

        Raises:
            ConversionError: if its rule does not support this case.
        """
        keys = tuple(None if key is None else ("result", i) for i, key in enumerate(call.outputs))
        values = IdentityValues() if values is None else values
        lower([Call(call.op, call.inputs, call.attrs, keys, call.location, call.schema)], rules, values, self)
        return tuple(None if key is None else values[key] for key in keys)
