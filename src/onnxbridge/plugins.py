"""The plugin protocols, and the registry of what is installed.

A package adds a frontend, a backend or rules by entry points in its own `pyproject.toml`:

    [project.entry-points."onnxbridge.frontends"]
    caffe = "acme.caffe:frontend"                 # an object like `Frontend`
    [project.entry-points."onnxbridge.backends"]
    tflite = "acme.tflite:backend"                # an object like `Backend`
    [project.entry-points."onnxbridge.rules"]
    "frontends.pytorch.acme" = "acme.rules"       # a module that registers rules in our table `frontends.pytorch`

Nothing is imported before it is asked for. `ONNXBRIDGE_PLUGINS=builtin` leaves out what other packages add.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import onnx_ir as ir

from onnxbridge.entry_points import entry_points
from onnxbridge.errors import UsageError
from onnxbridge.rules import Rules

Arrays = Mapping[str, np.ndarray[Any, Any]]
Run = Callable[[Arrays], dict[str, np.ndarray[Any, Any]]]
"""Takes inputs by the hub model's names and gives outputs by the hub model's names, in order."""
Specs = Mapping[str, tuple[Sequence[int | str | None], str]]


class Frontend(Protocol):
    """Traces a source into a hub model."""

    name: str
    title: str
    """The framework's own spelling, for reports: "PyTorch"."""
    package: str
    """The package that the framework is imported from, "" where none is needed."""

    @property
    def rules(self) -> Rules | None:
        """The table of source operators, None where the source is made of ONNX operators."""

    def accepts(self, source: Any) -> bool:
        """Whether this is a source for this frontend, told by type or by a file's content, without importing a framework."""

    def to_hub(self, source: Any, inputs: Any, dynamic: Any, **options: Any) -> ir.Model:
        """The source as a hub model. `inputs` and `dynamic` are as `convert` takes them, texts parsed already.

        Options are keyword-only parameters marked with `settings.Setting`, as a backend's are.

        Raises:
            ConversionError: with every operator that is in the way.
        """

    def runs_here(self) -> bool:
        """Whether `runner` has what it needs on this machine."""

    def runner(self, source: Any, device: str = "auto") -> Run:
        """What runs the source itself, prepared once and called for each sample."""


class Backend(Protocol):
    """Turns a hub model into an artifact."""

    name: str
    title: str
    package: str

    @property
    def rules(self) -> Rules | None: ...

    def from_hub(self, model: ir.Model, **options: Any) -> Any:
        """The artifact. The model is not changed. It has no functions, unless the backend says `keeps_functions = True`.

        An artifact may carry `notes`, what a user should know of it (a clamped bound, a rewritten name), `advice`, what to try
        where it does not compute the same, and `unit_roundoff`, of its arithmetic where that is coarser than the hub model's. For
        its verification there are `sizes`, bounds of dynamic sizes that it was made for, by default and in each other case, and
        `ends`, those of the least and the largest that it takes. A backend that rounds more than its sources may have
        `in_float32(artifact)`: what runs it without that, or None; one that compresses weights `as_stored(artifact)`: what runs
        it with these, or None. `suffixes` are those of the names that it writes, and `by_suffix` the options that they imply, as
        {".py": {"emit": "source"}}. `written(path, **options)` says which files it writes, if there are others than `path`,
        `check_options(**options)` raises `UsageError` for wrong ones before the model is read, and `require(verify)`
        `MissingFrameworkError` where something else is missing than `package`.

        Raises:
            ConversionError: with every operator that is in the way.
        """

    def native(self, artifact: Any) -> Any:
        """What users get as `Conversion.model`: the framework's own object."""

    def save(self, artifact: Any, path: Path) -> list[Path]:
        """Write the artifact at `path`, which is free, and return the files or folders written."""

    def runner(self, artifact: Any, device: str = "auto") -> Run:
        """What runs the artifact, prepared once and called for each sample."""

    def filename(self, stem: str) -> str:
        """What an artifact is called by default: "net.mlpackage"."""


class Opener(Protocol):
    """A backend that also opens its artifacts again, so that a file is verified with what its maker knows of it."""

    def made(self, path: Path) -> bool:
        """Whether this backend made the artifact at `path`."""

    def open(self, path: Path) -> Any:
        """The artifact that `save` wrote there, as `runner` takes it; its `inputs` and `outputs` have their names as `hub`.

        Raises:
            UnsafeFileError: if it is not one.
        """


@runtime_checkable
class Explainer(Protocol):
    """A backend that tells what it makes of each operator, for `check`."""

    def explain(self, model: ir.Model, **options: Any) -> Sequence[Any]:
        """A line for each operator, which has `as_dict`. Refused operators have lines too."""

    def table(self, lines: Sequence[Any]) -> str:
        """The lines as text."""


@dataclass(frozen=True)
class Plugin:
    """One installed plugin: `kind` is "frontend" or "backend", `package` the distribution that brings it."""

    kind: str
    name: str
    value: str
    package: str
    version: str


GROUPS = {"frontend": "onnxbridge.frontends", "backend": "onnxbridge.backends"}


@functools.cache
def installed(kind: str) -> dict[str, Plugin]:
    """The installed plugins of a kind by name, without importing them.

    Raises:
        UsageError: if two packages bring a plugin of the same name.
    """
    found: dict[str, Plugin] = {}
    for e in entry_points(GROUPS[kind]):
        there = found.get(e.name)
        if there is not None and there.value != e.value:
            raise UsageError(
                f"two {kind}s are called {e.name!r}: {there.value} and {e.value}; uninstall one, "
                "or set ONNXBRIDGE_PLUGINS=builtin to leave out what other packages add"
            )
        dist = e.dist
        found[e.name] = Plugin(kind, e.name, e.value, dist.name if dist else "", dist.version if dist else "")
    return found


_ALIASES = {
    "torch": "pytorch", "keras": "tensorflow", "tf": "tensorflow", "savedmodel": "tensorflow", "mlprogram": "coreml",
    "mlpackage": "coreml", "mx": "mxnet",
}  # fmt: skip
"""Other names by which users call our plugins."""
_ELSEWHERE = {
    "tflite": "convert to tensorflow, and the SavedModel with tf.lite.TFLiteConverter",
    "tensorrt": "convert to onnx, which TensorRT reads",
    "openvino": "convert to onnx, which OpenVINO reads",
    "jax": "convert to onnx or tensorflow, which JAX's own tools read",
}
"""Targets that others write, with the way to them."""


def backend_name(name: str) -> str:
    """A backend's name for what a user calls it: "pytorch" for "torch"."""
    return _name("backend", name)


def _name(kind: str, name: str) -> str:
    there, lower = installed(kind), name.lower()
    found = next((n for n in (name, lower, _ALIASES.get(lower)) if n in there), None)
    if found is None:
        way = f"; {_ELSEWHERE[lower]}" if kind == "backend" and lower in _ELSEWHERE else ""
        raise UsageError(f"there is no {kind} called {name!r}; installed: {', '.join(there) or 'none'}{way}")
    return found


def _load(kind: str, name: str) -> Any:
    plugins = installed(kind)
    name = _name(kind, name)
    module, _, attribute = plugins[name].value.partition(":")
    return getattr(import_module(module), attribute)


def frontend(name: str) -> Frontend:
    """The frontend of this name."""
    return cast(Frontend, _load("frontend", name))


def backend(name: str) -> Backend:
    """The backend of this name."""
    return cast(Backend, _load("backend", name))


def frontend_for(source: Any) -> Frontend:
    """The frontend that accepts the source.

    Raises:
        UsageError: if none does, or there is no such file.
        UnsafeFileError: for a pickle, and for bytes that are no model.
    """
    for name in installed("frontend"):
        found = frontend(name)
        if found.accepts(source):
            return found
    if isinstance(source, (str, os.PathLike)):
        from onnxbridge.hub.io.detect_format import recognise, wrong_kind

        raise wrong_kind(source, recognise(source), "a model that an installed frontend takes")
    if isinstance(source, tuple) and all(isinstance(part, (str, os.PathLike)) for part in source):
        raise UsageError(
            f"no frontend takes {' with '.join(map(str, source))}: a second file holds the weights of net-symbol.json or of "
            "module:factory, and comes after it"
        )
    raise UsageError(
        f"no frontend takes a {type(source).__module__}.{type(source).__qualname__}; "
        f"name one with frontend=... ({', '.join(installed('frontend'))})"
    )


def import_modules(names: str | Sequence[str] | None) -> None:
    """Import modules that register what a conversion needs: operators of torch.library, rules, decompositions.

    Modules of the current folder are found, as with `python -m`.

    Raises:
        UsageError: for a module that is not there, or that fails.
    """
    for name in [names] if isinstance(names, str) else names or ():
        sys.path.insert(0, os.getcwd())
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            missing = f"there is no module {error.name!r}" + (f", which {name!r} imports" if error.name != name else "")
            way = f"; give the module's name, {name[:-3]!r}" if name.endswith(".py") else ""
            raise UsageError(f"cannot import {name!r}: {missing}{way}") from error
        except (Exception, SystemExit) as error:
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
            raise UsageError(f"cannot import {name!r}: {type(error).__name__}: {text}") from error
        finally:
            sys.path.remove(os.getcwd())
