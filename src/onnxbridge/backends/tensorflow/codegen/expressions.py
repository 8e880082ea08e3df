"""Calls of Keras layers and functions as Python expressions, without default arguments."""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from onnxbridge.backends.tensorflow.functional.model import BuiltCall
from onnxbridge.errors import Unsupported
from onnxbridge.formats.python_source.line_breaking import WIDTH, quoted

_SIGNS = {
    "ops.add": "+", "ops.subtract": "-", "ops.multiply": "*", "ops.divide": "/", "ops.power": "**", "ops.less": "<",
    "ops.less_equal": "<=", "ops.greater": ">", "ops.greater_equal": ">=",
}  # fmt: skip
_USUAL = {"pool_size", "size", "padding", "cropping", "axes", "newshape", "indices_or_sections", "pad_width", "x_min", "x_max"}
"""Arguments that are written by position where those before them are, although some have a default."""


class Expressions:
    """Writes calls, given the name of each symbolic tensor and the class of each layer that is not Keras's. `uses_numpy` says
    whether an expression has an array."""

    def __init__(self, name: Callable[[Any], str], own_layer: Callable[[BuiltCall], str]) -> None:
        self._name, self._own_layer = name, own_layer
        self.uses_numpy = False

    def call(self, call: BuiltCall) -> str:
        """The expression of a call; that of a layer creates the layer and calls it."""
        if call.kind == "getitem":
            return f"{self.value(call.inputs[0])}[{self._index(call.inputs[1])}]"
        if call.layer is not None:
            return f"{self.layer(call)}({self.arguments(call)})"
        sign = _SIGNS.get(call.kind)
        arrays = any(isinstance(v, np.ndarray) for v in call.inputs)  # numpy's operators do not give way to Keras's
        if sign is not None and not arrays and not call.config and len(call.inputs) == 2:
            left, right = map(self.value, call.inputs)
            return f"{f'({left})' if sign == '**' and left.startswith('-') else left} {sign} {right}"
        if call.kind == "ops.negative":
            return f"-{self.value(call.inputs[0])}"
        function = getattr(keras.ops, call.kind.removeprefix("ops."))
        given, positional = dict(call.config), [self.arguments(call)]
        for name in list(_parameters(function))[1 if call.as_list else len(call.inputs) :]:
            if name not in given or name not in _USUAL:
                break
            positional.append(self.value(given.pop(name)))
        keywords = [f"{k}={self.value(v)}" for k, v in _without_defaults(function, given).items()]
        return f"{call.kind}({', '.join([*positional, *keywords])})"

    def arguments(self, call: BuiltCall) -> str:
        """The inputs of a call."""
        inputs = ", ".join(map(self.value, call.inputs))
        named = [f"{name}={self.value(value)}" for name, value in call.named.items()]
        return ", ".join([f"[{inputs}]" if call.as_list else inputs, *named])

    def layer(self, call: BuiltCall) -> str:
        """The expression that creates the layer of a call."""
        more = [f"name={quoted(call.layer.name)}"]
        if call.layer.weights and not call.layer.trainable:
            more.insert(0, "trainable=False")
        if call.kind in ("Operators", "Parameter"):
            return f"{self._own_layer(call)}({', '.join(more)})"
        first = [] if call.wrapped is None else [self._created(*call.wrapped, [])]
        return self._created(call.kind, call.config, more, first)

    def _created(self, kind: str, config: Mapping[str, Any], more: list[str], first: list[str] | None = None) -> str:
        function = getattr(keras.layers, kind)
        given, positional = dict(config), list(first or [])
        for name, parameter in list(_parameters(function).items())[len(positional) :]:
            if name not in given or (parameter.default is not inspect.Parameter.empty and (name not in _USUAL or positional)):
                break
            positional.append(self.value(given.pop(name)))
        named = [f"{name}={self.value(value)}" for name, value in _without_defaults(function, given).items()]
        return f"layers.{kind}({', '.join([*positional, *named, *more])})"

    def value(self, value: Any) -> str:
        """The expression of an argument: a tensor, or a literal.

        Raises:
            Unsupported: for a constant of another type.
        """
        if isinstance(value, keras.KerasTensor):
            return self._name(value)
        if isinstance(value, (list, tuple)):
            items = ", ".join(map(self.value, value))
            return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, (np.ndarray, np.generic)):
            self.uses_numpy = True
            return array_literal(np.asarray(value))
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, str):
            return quoted(value)
        if value is None or isinstance(value, (bool, int, float)):
            return repr(value)
        raise Unsupported(f"cannot write a {type(value).__name__} as source")

    def _index(self, index: Any) -> str:
        if isinstance(index, tuple):
            return ", ".join(map(self._index, index))
        if isinstance(index, slice):
            start, stop = ("" if v is None else self.value(v) for v in (index.start, index.stop))
            return f"{start}:{stop}" + ("" if index.step is None else f":{self.value(index.step)}")
        return self.value(index)


def array_literal(array: np.ndarray[Any, Any]) -> str:
    """The expression of an array, in rows where it is long.

    Raises:
        Unsupported: for strings and the like.
    """
    if array.dtype.kind not in "fiub":
        raise Unsupported(f"cannot write an array of {array.dtype} as source")
    elements = [_number(v) for v in array.reshape(-1)]
    shape = "" if array.ndim == 1 else f".reshape({', '.join(map(str, array.shape)) or '()'})"
    dtype = quoted(array.dtype.name)
    short = f"np.array([{', '.join(elements)}], {dtype}){shape}"
    if len(short) <= WIDTH - 30:
        return short
    rows = textwrap.wrap(", ".join(elements), WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return "\n".join(["np.array([", *(f"        {row}" for row in rows), f"    ], {dtype}){shape}"])


def _number(value: Any) -> str:
    """The shortest number that has the same value in its dtype."""
    if value.dtype.kind == "f":
        return str(value) if np.isfinite(value) else f'float("{value}")'
    return str(value)


@functools.cache
def _parameters(function: Any) -> Mapping[str, inspect.Parameter]:
    function = function.__init__ if inspect.isclass(function) else function
    return {name: p for name, p in inspect.signature(function).parameters.items() if name != "self"}


def _without_defaults(function: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not at their defaults."""
    known = _parameters(function)
    return {k: v for k, v in arguments.items() if k not in known or not _equal(v, known[k].default)}


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)
