"""The options of a plugin, which a backend's `from_hub` or a frontend's `to_hub` declares for Python and the command line:

    def from_hub(self, model, *, compute_precision: Annotated[Literal["fp32", "fp16"], Setting("the type to use")] = "fp32")

A parameter annotated with a `Setting` is also an option `--compute-precision` of `convert` and `check`. Its type says what
values it has: a `Literal` is a choice, a bool a flag, a `Sequence[str]` may be repeated, a `Path` is an existing file.
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
from onnxbridge.plugin_protocols import Backend


@dataclass(frozen=True)
class Setting:
    """Marks a parameter as an option: its help text, and a placeholder for its value."""

    help: str
    metavar: str = ""


EMIT = Setting("save the model, or Python source (.py) with a file of its weights.")
"""Of the option `emit`, "program" or "source", of several backends."""


@dataclass(frozen=True)
class Option:
    """One option of a plugin: `kind` is bool, int, float, str or Path; `many` if it can be repeated."""

    name: str
    kind: type
    choices: tuple[str, ...]
    many: bool
    default: Any
    help: str
    metavar: str


def options(plugin: Any) -> Mapping[str, Option]:
    """The options that a plugin declares, by name."""
    return _declared(_function(plugin))


def _function(plugin: Any) -> Any:
    """The function behind the bound method, which is the same for all instances of a class."""
    method = plugin.options_method()
    return getattr(method, "__func__", method)


_SIZES = 'dynamic={"input": {0: "batch"}}'
_OTHER_NAMES = {
    **dict.fromkeys(("dynamic_shapes", "dynamic_axes", "dynamic_batch"), _SIZES),
    **dict.fromkeys(("args", "example_inputs", "sample_inputs", "dummy_input", "example_input"), "inputs=(tensor,)"),
    **dict.fromkeys(("input_shape", "input_shapes", "input_signature"), 'inputs="x:float32[N,3,224,224]"'),
    **dict.fromkeys(("opset_version", "target_opset"), "opset="), **dict.fromkeys(("target", "target_format"), "to="),
    **dict.fromkeys(("f", "output_path", "output_file"), "output="),
}  # fmt: skip
"""Names of other converters' arguments, and the arguments of `convert` for them."""


@functools.cache
def _declared(method: Any) -> Mapping[str, Option]:
    names = getattr(method, "__globals__", {})
    found = {}
    for p in inspect.signature(method).parameters.values():
        if p.kind is p.KEYWORD_ONLY:
            annotation = p.annotation
            if isinstance(annotation, str):  # of the plugin's own source
                annotation = eval(annotation, names)  # noqa: S307
            setting = next((m for m in getattr(annotation, "__metadata__", ()) if isinstance(m, Setting)), None)
            if setting is not None:
                found[p.name] = _option(p.name, annotation.__origin__, p.default, setting)
    return found


def _option(name: str, annotation: Any, default: Any, setting: Setting) -> Option:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [a for a in typing.get_args(annotation) if a is not type(None)]
        annotation = next((a for a in parts if a is Path), parts[0])
    origin = typing.get_origin(annotation)
    many = origin is not None and origin is not Literal and issubclass(origin, Sequence)
    if many:
        annotation = typing.get_args(annotation)[0]
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is Literal else ()
    return Option(name, str if choices else annotation, choices, many, default, setting.help, setting.metavar)


def has_option(plugin: Any, name: str) -> bool:
    """Whether a plugin has this option, on the command line or in Python only."""
    return name in _keywords(plugin)


def _keywords(plugin: Any) -> tuple[str, ...]:
    return _keywords_of(_function(plugin))


@functools.cache
def _keywords_of(method: Any) -> tuple[str, ...]:
    return tuple(p.name for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY)


def of_source(
    frontend: Any, given: Mapping[str, Any], preferred: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The given options that the frontend has, checked, and the others, which are the backend's.

    `preferred` are a backend's `source_defaults`, for options that are not given.
    """
    own = {name: value for name, value in {**(preferred or {}), **given}.items() if has_option(frontend, name)}
    return checked(frontend, own), {name: value for name, value in given.items() if name not in own}


def checked(plugin: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, if the plugin has them.

    Raises:
        UsageError: for an option that it does not have, and for a value that is not one of an option's choices.
    """
    known = _keywords(plugin)
    unknown = sorted(set(given) - set(known))
    if unknown:
        has = f"its options are {', '.join(known)}" if known else "it has no options"
        renamed = "".join(f"; {name} is {_OTHER_NAMES[name]} here" for name in unknown if name in _OTHER_NAMES)
        kind = "backend" if isinstance(plugin, Backend) else "frontend"
        raise UsageError(f"{kind} {plugin.name!r} has no option {', '.join(map(repr, unknown))}; {has}{renamed}")
    for name, option in options(plugin).items():
        if option.choices and given.get(name) not in (None, *option.choices):
            raise UsageError(f"{name}={given[name]!r} is not one of {', '.join(option.choices)}")
    return dict(given)


def shared(backends: Sequence[Any], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """For each backend, by name, those of the given options that it has.

    Raises:
        UsageError: for an option that none of them has.
    """
    found = {b.name: checked(b, {k: v for k, v in given.items() if has_option(b, k)}) for b in backends}
    unknown = sorted(set(given) - {k for known in found.values() for k in known})
    if unknown:
        raise UsageError(f"none of the backends {', '.join(found)} has an option {', '.join(map(repr, unknown))}")
    return found
