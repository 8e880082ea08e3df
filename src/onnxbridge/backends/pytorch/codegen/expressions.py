"""Traced calls as Python expressions, with operators and slices, and without default arguments."""

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
from onnxbridge.errors import Unsupported
from onnxbridge.formats.python_source.line_breaking import quoted

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
_SIGNS = {function: (sign, precedence) for sign, (precedence, functions) in _INFIX.items() for function in functions}
_VARIADIC = ("permute", "reshape", "expand", "repeat")
"""Methods that take the elements of a list as separate arguments."""
_SAME = ("kernel_size", "stride", "padding", "dilation", "output_padding")
"""Arguments for which one number stands for all dimensions."""
_ENDLESS = (1 << 63) - 1


@dataclass(frozen=True)
class Expression:
    """An expression and the precedence of its outermost operator."""

    text: str
    precedence: int = _ATOM

    def within(self, precedence: int) -> str:
        """As an operand of an operator of this precedence, in parentheses if needed."""
        return self.text if self.precedence >= precedence else f"({self.text})"


class Expressions:
    """Writes calls, given the expressions of their operands."""

    def __init__(self, inlined: Inlined, module: Callable[[str], str]) -> None:
        self.inlined = inlined
        self.module = module

    def call(self, node: fx.Node, names: Mapping[fx.Node, Expression]) -> Expression:
        """The expression of a node."""
        if node.op == "call_module":
            return Expression(f"{self.module(str(node.target))}({self._arguments(node.args, node.kwargs, names)})")
        if node.op == "call_method":
            args = node.args[1:]
            if node.target in _VARIADIC and len(args) == 1 and isinstance(args[0], (list, tuple)) and len(args[0]) > 0:
                args = tuple(args[0])
            return Expression(
                f"{self.value(node.args[0], names).within(_ATOM)}.{node.target}({self._arguments(args, node.kwargs, names)})"
            )
        if node.target in _SIGNS and len(node.args) == 2 and not node.kwargs:
            sign, precedence = _SIGNS[node.target]
            left, right = (self.value(a, names) for a in node.args)
            precedences = (
                (precedence + 1, _UNARY) if precedence == _POWER else (precedence + (precedence == _COMPARED), precedence + 1)
            )
            before, after = left.within(precedences[0]), right.within(precedences[1])
            compact = sign == "**" and all(re.fullmatch(r"[\w.]+", operand) for operand in (before, after))
            return Expression(f"{before}{sign}{after}" if compact else f"{before} {sign} {after}", precedence)
        if node.target is operator.getitem:
            return Expression(f"{self.value(node.args[0], names).within(_ATOM)}[{self._index(node.args[1], names)}]")
        if node.target is getattr:
            return Expression(f"{self.value(node.args[0], names).within(_ATOM)}.{node.args[1]}")
        args, kwargs = _without_defaults(node.target, node.args, node.kwargs)
        return Expression(f"{self._function_name(node.target)}({self._arguments(args, kwargs, names)})")

    def value(self, value: Any, names: Mapping[fx.Node, Expression]) -> Expression:
        """The expression of an argument: another value, or a literal."""
        if isinstance(value, fx.Node):
            return names[value]
        if isinstance(value, (list, tuple)):
            items = ", ".join(self.value(v, names).text for v in value)
            return Expression(f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})")
        if isinstance(value, slice):
            return Expression(f"slice({', '.join(self.value(v, names).text for v in (value.start, value.stop, value.step))})")
        if isinstance(value, dict):
            pairs = (f"{self.value(k, names).text}: {self.value(v, names).text}" for k, v in value.items())
            return Expression("{" + ", ".join(pairs) + "}")
        if isinstance(value, float) and not math.isfinite(value):
            return Expression(f'float("{value}")')
        if isinstance(value, (torch.dtype, torch.device)):
            return Expression(str(value) if isinstance(value, torch.dtype) else f"torch.device({str(value)!r})")
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, str)):
            text = quoted(value) if isinstance(value, str) else ascii(value).replace("e+", "e")
            return Expression(text, _UNARY if text.startswith("-") else _ATOM)
        raise Unsupported(f"cannot write a {type(value).__name__} as source")

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any], names: Mapping[fx.Node, Expression]) -> str:
        return ", ".join([
            *(self.value(a, names).text for a in args), *(f"{k}={self.value(v, names).text}" for k, v in kwargs.items())
        ])  # fmt: skip

    def _index(self, index: Any, names: Mapping[fx.Node, Expression]) -> str:
        if isinstance(index, slice):
            start = "" if index.start in (None, 0) and not isinstance(index.start, bool) else self.value(index.start, names).text
            stop = "" if index.stop is None or index.stop == _ENDLESS else self.value(index.stop, names).text
            return f"{start}:{stop}" + ("" if index.step in (None, 1) else f":{self.value(index.step, names).text}")
        if isinstance(index, tuple) and index:
            return ", ".join(self._index(i, names) for i in index)
        return "..." if index is Ellipsis else self.value(index, names).text

    def _function_name(self, function: Any) -> str:
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
        raise Unsupported(f"cannot write a call of {module}.{name} as source")


def uniform(value: Any) -> Any:
    """A single number if all elements of a list are equal, as people write it."""
    same = isinstance(value, (list, tuple)) and len(value) > 0 and all(type(v) is int and v == value[0] for v in value)
    return value[0] if same else value


def _without_defaults(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The arguments without defaults; other optional arguments are passed by keyword."""
    found = next((s.parameters for s in _signatures(function) if _matches(s, args, kwargs)), None)
    if found is None:
        return args, kwargs
    arguments_ = {**dict(zip(found, args, strict=False)), **kwargs}
    arguments_ = {k: uniform(v) if k in _SAME else v for k, v in arguments_.items()}
    if "stride" in arguments_ and "kernel_size" in arguments_ and _equal(arguments_["stride"], arguments_["kernel_size"]):
        del arguments_["stride"]  # the default of a pool
    needed = [arguments_[k] for k, default in found.items() if default is inspect.Parameter.empty and k not in kwargs]
    more = {k: v for k, v in arguments_.items() if k in kwargs or found[k] is not inspect.Parameter.empty}
    return needed, {k: v for k, v in more.items() if not _equal(uniform(v), uniform(found[k]))}


@dataclass(frozen=True)
class Signature:
    """A signature of a function: its parameters with defaults, and how many may be positional."""

    parameters: Mapping[str, Any]
    positional: int


def _matches(signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call matches a signature, with keywords for optional parameters."""
    parameters = signature.parameters
    arguments_ = dict(zip(parameters, args, strict=False))
    strings = all(
        isinstance(v, str) == isinstance(parameters[k], str) for k, v in arguments_.items() if isinstance(parameters[k], str)
    )
    needed = [k for k, default in parameters.items() if default is inspect.Parameter.empty]
    return (
        strings and len(args) <= signature.positional and set(kwargs) <= set(parameters) and set(needed) <= {*arguments_, *kwargs}
    )


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and not isinstance(a, fx.Node) and bool(a == b)


@functools.cache
def _signatures(function: Any) -> list[Signature]:
    """The signatures of a function."""
    return list(_find_signatures(function))


def _find_signatures(function: Any) -> Iterator[Signature]:
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
