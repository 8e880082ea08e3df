"""The registry of installed plugins.

A package adds a frontend, a backend or rules by entry points in its own `pyproject.toml`:

    [project.entry-points."onnxbridge.frontends"]
    caffe = "acme.caffe:frontend"                 # an instance of `Frontend`
    [project.entry-points."onnxbridge.backends"]
    tflite = "acme.tflite:backend"                # an instance of `Backend`
    [project.entry-points."onnxbridge.rules"]
    "frontends.pytorch.acme" = "acme.rules"       # a module that registers rules in our table `frontends.pytorch`

Plugins are imported when they are first used. `ONNXBRIDGE_PLUGINS=builtin` ignores those of other packages.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from onnxbridge.entry_points import entry_points
from onnxbridge.errors import UsageError
from onnxbridge.plugin_protocols import Arrays, ArtifactInfo, Backend, Frontend, NamedRun, Outline, Reopened, Run

__all__ = [
    "Arrays", "ArtifactInfo", "Backend", "Frontend", "GROUPS", "NamedRun", "Outline", "Plugin", "Reopened", "Run", "backend",
    "backend_name", "frontend", "frontend_for", "implied_files", "import_modules", "installed",
]  # fmt: skip


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: `kind` is "frontend" or "backend", `package` the distribution that it belongs to."""

    kind: str
    name: str
    value: str
    package: str
    version: str


GROUPS = {"frontend": "onnxbridge.frontends", "backend": "onnxbridge.backends"}


@functools.cache
def installed(kind: str) -> dict[str, Plugin]:
    """The installed plugins of a kind ("frontend" or "backend") by name, without importing them.

    Raises:
        UsageError: if two packages have a plugin of the same name.
    """
    found: dict[str, Plugin] = {}
    for e in entry_points(GROUPS[kind]):
        known = found.get(e.name)
        if known is not None and known.value != e.value:
            raise UsageError(
                f"two {kind}s are named {e.name!r}: {known.value} and {e.value}; uninstall one, "
                "or set ONNXBRIDGE_PLUGINS=builtin to ignore those of other packages"
            )
        dist = e.dist
        found[e.name] = Plugin(kind, e.name, e.value, dist.name if dist else "", dist.version if dist else "")
    return found


def backend_name(name: str) -> str:
    """A backend's name for what a user calls it: "pytorch" for "torch"."""
    return _name("backend", name)


def _name(kind: str, name: str) -> str:
    names, lower = installed(kind), name.lower()
    for found in (name, lower):
        if found in names:
            return found
    every = [_load(kind, n) for n in names]
    for plugin in every:
        if lower in plugin.aliases:
            return str(plugin.name)
    hint = next((f"; {p.hints[lower]}" for p in every if isinstance(p, Backend) and lower in p.hints), "")
    raise UsageError(f"there is no {kind} {name!r}; installed: {', '.join(names) or 'none'}{hint}")


@functools.cache
def _load(kind: str, name: str) -> Any:
    plugin = installed(kind)[name]
    module, _, attribute = plugin.value.partition(":")
    base: type[Any] = {"frontend": Frontend, "backend": Backend}[kind]
    return complete(getattr(import_module(module), attribute), base, plugin.value)


Base = TypeVar("Base", Frontend, Backend)


def complete(plugin: Any, base: type[Base], value: str) -> Base:
    """The plugin itself where it inherits from `base`, else one that does and has the members of the plugin.

    Raises:
        UsageError: for a plugin without an obligatory member.
    """
    own = dir(plugin)
    missing = [n for n in ("name", "title", *sorted(vars(base)["__abstractmethods__"])) if n not in own]
    if missing:
        kind = base.__name__.lower()
        raise UsageError(f"the {kind} {value!r} lacks {', '.join(missing)}, which docs/add-a-plugin.md describes")
    if isinstance(plugin, base):
        return plugin

    def member(name: str) -> property:  # looked up when used: the table of rules, for one, may import a framework
        return property(lambda self: getattr(plugin, name))

    made: Base = type(type(plugin).__name__, (base,), {n: member(n) for n in own if not n.startswith("_")})()
    return made


def frontend(name: str) -> Frontend:
    """The frontend of this name."""
    found: Frontend = _load("frontend", _name("frontend", name))
    return found


def backend(name: str) -> Backend:
    """The backend of this name."""
    found: Backend = _load("backend", _name("backend", name))
    return found


def frontend_for(source: Any, name: str | None = None) -> Frontend:
    """The frontend of this name, or else the one that accepts the source.

    Raises:
        UsageError: if none does, the file does not exist, or is one that another frontend than the named one reads.
        UnsafeFileError: for a pickle, and for a file that is not a model.
    """
    from onnxbridge.hub.io.detect_format import detect_format, wrong_format_error

    is_path = isinstance(source, (str, os.PathLike))
    if name:
        named = frontend(name)
        if is_path and not named.accepts(source) and any(frontend(n).accepts(source) for n in installed("frontend")):
            raise wrong_format_error(source, detect_format(source), f"what the frontend {named.name!r} reads")
        return named
    for each in installed("frontend"):
        found = frontend(each)
        if found.accepts(source):
            return found
    if is_path:
        raise wrong_format_error(source, detect_format(source), "a model that an installed frontend reads")
    if isinstance(source, tuple) and all(isinstance(part, (str, os.PathLike)) for part in source):
        raise UsageError(
            f"no frontend reads {' with '.join(map(str, source))}: a second file holds the weights of net-symbol.json or of "
            "module:factory, and comes after it"
        )
    raise UsageError(
        f"no frontend reads a {type(source).__module__}.{type(source).__qualname__}; "
        f"name one with frontend=... ({', '.join(installed('frontend'))})"
    )


def implied_files(source: Any) -> list[Path]:
    """The files that a source is read from although it does not name them; none where no frontend accepts it."""
    for name in installed("frontend"):
        found = frontend(name)
        if found.accepts(source):
            return list(found.implied_files(source))
    return []


_imported: list[str] = []


def imported() -> list[str]:
    """The modules that `import_modules` has imported."""
    return list(_imported)


def import_modules(names: str | Sequence[str] | None) -> None:
    """Import modules that register operators of torch.library, rules or decompositions.

    Modules of the current folder are found, as with `python -m`.

    Raises:
        UsageError: for a module that does not exist or whose import fails.
    """
    for name in [names] if isinstance(names, str) else names or ():
        sys.path.insert(0, os.getcwd())
        try:
            import_module(name)
            _imported.append(name)
        except ModuleNotFoundError as error:
            missing = f"there is no module {error.name!r}" + (f", which {name!r} imports" if error.name != name else "")
            way = f"; give the module's name, {name[:-3]!r}" if name.endswith(".py") else ""
            raise UsageError(f"cannot import {name!r}: {missing}{way}") from error
        except (Exception, SystemExit) as error:
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
            raise UsageError(f"cannot import {name!r}: {type(error).__name__}: {text}") from error
        finally:
            sys.path.remove(os.getcwd())
