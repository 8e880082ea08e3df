"""The options of a plugin. A backend's `from_hub` or a frontend's `to_hub` declares them, once for Python and the command line:

    def from_hub(self, model, *, compute_precision: Annotated[Literal["fp32", "fp16"], Setting("the type to use")] = "fp32")

A parameter that carries a `Setting` is an option `--compute-precision` of `convert` and `check` too. Its type says what it takes:
a `Literal` one of these, a bool nothing, a `Sequence[str]` one at a time, a `Path` an existing file.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxbridge.errors import UsageError


@dataclass(frozen=True)
class Setting:
    """Marks a parameter as an option: what it is for, and what its value looks like."""

    help: str
    metavar: str = ""


@dataclass(frozen=True)
class Option:
    """One option of a plugin: `kind` is bool, int, float, str or Path; `many` of them where it can be given more than once."""

    name: str
    kind: type
    choices: tuple[str, ...]
    many: bool
    default: Any
    help: str
    metavar: str


def _method(plugin: Any) -> Any:
    """What declares the options: a backend's `from_hub`, a frontend's `to_hub`."""
    return plugin.from_hub if hasattr(plugin, "from_hub") else plugin.to_hub


def options(plugin: Any) -> Mapping[str, Option]:
    """The options that a plugin declares, by name."""
    return _declared(_function(plugin))


def _function(plugin: Any) -> Any:
    """What is one and the same for every object of a plugin's class."""
    method = _method(plugin)
    return getattr(method, "__func__", method)


_SIZES = 'dynamic={"input": {0: "batch"}}'
_ELSEWHERE = {
    **dict.fromkeys(("dynamic_shapes", "dynamic_axes", "dynamic_batch"), _SIZES),
    **dict.fromkeys(("args", "example_inputs", "sample_inputs", "dummy_input", "example_input"), "inputs=(tensor,)"),
    **dict.fromkeys(("input_shape", "input_shapes", "input_signature"), 'inputs="x:float32[N,3,224,224]"'),
    **dict.fromkeys(("opset_version", "target_opset"), "opset="), **dict.fromkeys(("target", "target_format"), "to="),
    **dict.fromkeys(("f", "output_path", "output_file"), "output="),
}  # fmt: skip
"""What other converters call arguments of `convert`."""


@functools.cache
def _declared(method: Any) -> Mapping[str, Option]:
    names = getattr(method, "__globals__", {})
    found = {}
    for p in inspect.signature(method).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            annotation = eval(p.annotation, names) if isinstance(p.annotation, str) else p.annotation
            mark = next((m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Setting)), None)
            if mark is not None:
                found[p.name] = _option(p.name, annotation.__origin__, p.default, mark)
    return found


def _option(name: str, annotation: Any, default: Any, mark: Setting) -> Option:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [a for a in typing.get_args(annotation) if a is not type(None)]
        annotation = next((a for a in parts if a is Path), parts[0])
    origin = typing.get_origin(annotation)
    many = origin is not None and origin is not Literal and issubclass(origin, Sequence)
    if many:
        annotation = typing.get_args(annotation)[0]
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
    return Option(name, str if choices else annotation, choices, many, default, mark.help, mark.metavar)


def takes(plugin: Any, name: str) -> bool:
    """Whether a plugin has this option, declared for the command line or not."""
    return name in _keywords(plugin)


def _keywords(plugin: Any) -> tuple[str, ...]:
    return _keywords_of(_function(plugin))


@functools.cache
def _keywords_of(method: Any) -> tuple[str, ...]:
    return tuple(p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY)


def of_source(frontend: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a frontend takes of the options that were given, and the others, which are for the target."""
    own = {name: value for name, value in given.items() if takes(frontend, name)}
    return checked(frontend, own), {name: value for name, value in given.items() if name not in own}


def checked(plugin: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, if the plugin has them.

    Raises:
        UsageError: for an option that it does not have, and for a value that is not one of an option's choices.
    """
    taken = _keywords(plugin)
    unknown = sorted(set(given) - set(taken))
    if unknown:
        has = f"its options are {', '.join(taken)}" if taken else "it has no options"
        ours = "".join(f"; {name} is {_ELSEWHERE[name]} here" for name in unknown if name in _ELSEWHERE)
        kind = "backend" if hasattr(plugin, "from_hub") else "frontend"
        raise UsageError(f"{kind} {plugin.name!r} has no option {', '.join(unknown)}; {has}{ours}")
    for name, option in options(plugin).items():
        if option.choices and given.get(name) not in (None, *option.choices):
            raise UsageError(f"{name}={given[name]!r} is none of {', '.join(option.choices)}")
    return dict(given)


def shared(backends: Sequence[Any], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What each backend takes of options that were given for all, by the backend's name.

    Raises:
        UsageError: for an option that none of them takes.
    """
    found = {b.name: checked(b, {k: v for k, v in given.items() if takes(b, k)}) for b in backends}
    nobody = sorted(set(given) - {k for taken in found.values() for k in taken})
    if nobody:
        raise UsageError(f"none of the targets {', '.join(found)} has an option {', '.join(nobody)}")
    return found
