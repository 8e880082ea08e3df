"""Recorded calls as expressions of Python: with its operators and slices, and without what a function has by default."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from onnxbridge.backends.pytorch.codegen.helper_source import PACKAGE, Inlined
from onnxbridge.backends.pytorch.codegen.line_breaking import quoted
from onnxbridge.errors import Unsupported

_ATOM, _POWER, _UNARY, _COMPARED = 14, 12, 11, 4
_INFIX: dict[str, tuple[int, tuple[Any, ...]]] = {
    "+": (9, (operator.add, torch.add)), "-": (9, (operator.sub, torch.sub)), "*": (10, (operator.mul, torch.mul)),
    "/": (10, (operator.truediv, torch.div)), "@": (10, (operator.matmul, torch.matmul)), "//": (10, (operator.floordiv,)),
    "%": (10, (operator.mod,)), "**": (_POWER, (operator.pow, torch.pow)), "<<": (8, (operator.lshift,)),
    ">>": (8, (operator.rshift,)), "&": (7, (operator.and_,)), "^": (6, (operator.xor,)), "|": (5, (operator.or_,)),
    "<": (_COMPARED, (operator.lt, torch.lt)), "<=": (_COMPARED, (operator.le, torch.le)),
    ">": (_COMPARED, (operator.gt, torch.gt)), ">=": (_COMPARED, (operator.ge, torch.ge)),
    "==": (_COMPARED, (operator.eq, torch.eq)), "!=": (_COMPARED, (operator.ne, torch.ne)),
}  # fmt: skip
_SIGNS = {function: (sign, level) for sign, (level, functions) in _INFIX.items() for function in functions}
_SPREAD = ("permute", "reshape", "expand", "repeat")
"""Methods that take the elements of a list one by one."""
_SAME = ("kernel_size", "stride", "padding", "dilation", "output_padding")
"""Arguments for which one number stands for the same in every direction."""
_ENDLESS = (1 << 63) - 1


@dataclass(frozen=True)
class Text:
    """An expression, and how tightly what is outermost in it binds."""

    text: str
    level: int = _ATOM

    def within(self, level: int) -> str:
        """As part of an expression that binds so tightly."""
        return self.text if self.level >= level else f"({self.text})"


class Expressions:
    """Writes calls, given how the values that they take are written."""

    def __init__(self, inlined: Inlined, module: Callable[[str], str]) -> None:
        self.inlined = inlined
        self.module = module

    def call(self, node: fx.Node, names: Mapping[fx.Node, Text]) -> Text:
        """What a node computes."""
        if node.op == "call_module":
            return Text(f"{self.module(str(node.target))}({self._given(node.args, node.kwargs, names)})")
        if node.op == "call_method":
            args = node.args[1:]
            if node.target in _SPREAD and len(args) == 1 and isinstance(args[0], (list, tuple)) and len(args[0]) > 0:
                args = tuple(args[0])
            return Text(f"{self.value(node.args[0], names).within(_ATOM)}.{node.target}({self._given(args, node.kwargs, names)})")
        if node.target in _SIGNS and len(node.args) == 2 and not node.kwargs:
            sign, level = _SIGNS[node.target]
            left, right = (self.value(a, names) for a in node.args)
            tight = (level + 1, _UNARY) if level == _POWER else (level + (level == _COMPARED), level + 1)
            before, after = left.within(tight[0]), right.within(tight[1])
            close = sign == "**" and all(re.fullmatch(r"[\w.]+", side) for side in (before, after))
            return Text(f"{before}{sign}{after}" if close else f"{before} {sign} {after}", level)
        if node.target is operator.getitem:
            return Text(f"{self.value(node.args[0], names).within(_ATOM)}[{self._index(node.args[1], names)}]")
        if node.target is getattr:
            return Text(f"{self.value(node.args[0], names).within(_ATOM)}.{node.args[1]}")
        args, kwargs = _without_defaults(node.target, node.args, node.kwargs)
        return Text(f"{self._named(node.target)}({self._given(args, kwargs, names)})")

    def value(self, value: Any, names: Mapping[fx.Node, Text]) -> Text:
        """What a call takes: another value, or a literal."""
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, (list, tuple)):
            items = ", ".join(self.value(v, names).text for v in value)
            return Text(f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})")
        if isinstance(value, slice):
            return Text(f"slice({', '.join(self.value(v, names).text for v in (value.start, value.stop, value.step))})")
        if isinstance(value, dict):
            pairs = (f"{self.value(k, names).text}: {self.value(v, names).text}" for k, v in value.items())
            return Text("{" + ", ".join(pairs) + "}")
        if isinstance(value, float) and not math.isfinite(value):
            return Text(f'float("{value}")')
        if isinstance(value, (torch.dtype, torch.device)):
            return Text(str(value) if isinstance(value, torch.dtype) else f"torch.device({str(value)!r})")
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str)):
            text = quoted(value) if isinstance(value, str) else ascii(value).replace("e+", "e")
            return Text(text, _UNARY if text.startswith("-") else _ATOM)
        raise Unsupported(f"source text with a {type(value).__name__}")

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Mapping[fx.Node, Text]) -> str:
        return ", ".join([
            *(self.value(a, names).text for a in args), *(f"{k}={self.value(v, names).text}" for k, v in kwargs.items())
        ])  # fmt: skip

    def _index(self, index: Any, names: Mapping[fx.Node, Text]) -> str:
        if isinstance(index, slice):
            start = "" if index.start in (None, 0) and not isinstance(index.start, bool) else self.value(index.start, names).text
            stop = "" if index.stop is None or index.stop == _ENDLESS else self.value(index.stop, names).text
            return f"{start}:{stop}" + ("" if index.step in (None, 1) else f":{self.value(index.step, names).text}")
        if isinstance(index, tuple) and index:
            return ", ".join(self._index(i, names) for i in index)
        return "..." if index is Ellipsis else self.value(index, names).text

    def _named(self, function: Any) -> str:
        name, module = getattr(function, "__name__", ""), str(getattr(function, "__module__", "") or "")
        if inspect.unwrap(function).__module__.startswith(PACKAGE):
            return self.inlined.name(function)
        homes = {"F": nn.functional, "torch": torch, "torch.linalg": torch.linalg, "torch.fft": torch.fft}
        for prefix, home in homes.items():
            found = next((n for n in (name, *dir(home)) if getattr(home, n, None) is function), None)  # F.max_pool2d is a "fn"
            if found:
                if prefix == "F":
                    self.inlined.imports.add("import torch.nn.functional as F")
                return f"{prefix}.{found}"
        if module in ("_operator", "operator"):
            self.inlined.imports.add("import operator")
            return f"operator.{name}"
        if module == "math":
            self.inlined.imports.add("import math")
            return f"math.{name}"
        raise Unsupported(f"source text that calls {module}.{name}")


def one(value: Any) -> Any:
    """One number where a list has the same in every place, as people write it."""
    same = isinstance(value, (list, tuple)) and len(value) > 0 and all(type(v) is int and v == value[0] for v in value)
    return value[0] if same else value


def _without_defaults(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments without those that the function has by itself; the others that it could do without are by name."""
    found = next((s.parameters for s in _signatures(function) if _takes(s, args, kwargs)), None)
    if found is None:
        return args, kwargs
    given = {**dict(zip(found, args, strict=False)), **kwargs}
    given = {k: one(v) if k in _SAME else v for k, v in given.items()}
    if "stride" in given and "kernel_size" in given and _alike(given["stride"], given["kernel_size"]):
        del given["stride"]  # what a pool has by itself
    needed = [given[k] for k, default in found.items() if default is inspect.Parameter.empty and k not in kwargs]
    more = {k: v for k, v in given.items() if k in kwargs or found[k] is not inspect.Parameter.empty}
    return needed, {k: v for k, v in more.items() if not _alike(one(v), one(found[k]))}


@dataclass(frozen=True)
class Signature:
    """A way to call a function: its parameters with their defaults, and how many of them may go without a name."""

    parameters: Mapping[str, Any]
    positional: int


def _takes(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call fits a signature, and has names for all that may be left out."""
    parameters = signature.parameters
    given = dict(zip(parameters, args, strict=False))
    texts = all(isinstance(v, str) == isinstance(parameters[k], str) for k, v in given.items() if isinstance(parameters[k], str))
    needed = [k for k, default in parameters.items() if default is inspect.Parameter.empty]
    return texts and len(args) <= signature.positional and set(kwargs) <= set(parameters) and set(needed) <= {*given, *kwargs}


def _alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, fx.Node) and bool(a == b)


@functools.cache
def _signatures(function: Any) -> list[Signature]:
    """The ways to call a function."""
    return list(_found(function))


def _found(function: Any) -> Iterator[Signature]:
    name = getattr(function, "__name__", "")
    python = getattr(nn.functional, f"_{name}", function) if "pool" in name else function
    if inspect.isfunction(python):
        parameters = inspect.signature(python).parameters
        kinds = [p.kind for p in parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL not in kinds and inspect.Parameter.VAR_KEYWORD not in kinds:
            named = kinds.count(inspect.Parameter.KEYWORD_ONLY)
            yield Signature({k: p.default for k, p in parameters.items()}, len(kinds) - named)
        return
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if "out" not in schema.overload_name:
            arguments = schema.arguments
            defaults = {a.name: a.default_value if a.has_default_value() else inspect.Parameter.empty for a in arguments}
            yield Signature(defaults, sum(not a.kwarg_only for a in arguments))
