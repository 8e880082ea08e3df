"""Checks before a model is read: targets, options, names, and files that cannot be written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxbridge import plugins
from onnxbridge.atomic_write import obstacle
from onnxbridge.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir


def target_of(to: str | None, output: str | os.PathLike[str] | None) -> str:
    """The backend's name: `to` where given, else the backend that writes the output's suffix, else "onnx".

    Raises:
        UsageError: for a suffix that only another backend writes, or that none does.
    """
    suffix = "" if output is None else Path(output).suffix.lower()
    suffix = suffix if suffix[1:2].isalpha() else ""  # net-1.5 has none
    backends = {name: plugins.backend(name) for name in plugins.installed("backend")}
    owner = next((name for name, backend in backends.items() if suffix in (backend.suffixes or ())), None)
    if to is None and owner is not None:
        return owner
    name = plugins.backend_name(to or "onnx")
    own = backends[name].suffixes
    if own is None or suffix in own or not suffix:
        return name
    hint = next((backend.hints[suffix] for backend in backends.values() if suffix in backend.hints), "")
    if hint:
        raise UsageError(f"{Path(str(output)).name!r} cannot be written: {hint}")
    if owner is not None:
        usual = f"name it {' or '.join('*' + s for s in own)}" if own else "name it without a suffix"
        raise UsageError(f"{Path(str(output)).name!r} is a name for --to {owner}; for --to {name} {usual}")
    if to is None or own:
        known = own if to is not None else sorted(s for backend in backends.values() for s in backend.suffixes or ())
        raise UsageError(f"{Path(str(output)).name!r} cannot be written: name it {' or '.join('*' + s for s in known)}")
    return name


def source_files(source: Any, hub: ir.Model | None = None) -> list[Path]:
    """The files and folders that a source is read from: external data, a factory's module and implied files included."""
    found: list[Path] = []
    for part in source if isinstance(source, (tuple, list)) else [source]:
        if not isinstance(part, (str, os.PathLike)):
            continue
        if os.path.exists(part):
            found.append(Path(part))
        elif isinstance(part, str) and ":" in part:
            found += _module_file(part.partition(":")[0])
    given = tuple(part for part in source if part is not None) if isinstance(source, (tuple, list)) else source
    implied = plugins.implied_files(given[0] if isinstance(given, tuple) and len(given) == 1 else given)
    found += [path for path in implied if path not in found]
    if hub is not None and found:
        from onnxbridge.hub.io.onnx_files import EXTERNAL_FILES

        found += [found[0].parent / location for location in hub.meta.get(EXTERNAL_FILES, ())]
    return found


def _module_file(name: str) -> list[Path]:
    """The file of a module, found without importing it."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return [Path(file)] if file else []
    path = Path(*name.split(".")).with_suffix(".py")
    return [base / path for base in map(Path, ["", *sys.path]) if (base / path).is_file()][:1]


def check_planting(mutants: int | None, strict: bool = False, verify: bool = True) -> None:
    """Check the options that say what a verification has to prove.

    Raises:
        UsageError: if they cannot be followed.
    """
    if mutants is not None and (isinstance(mutants, bool) or not isinstance(mutants, int) or mutants < 0):
        raise UsageError(f"mutants={mutants!r}: it is how many faults to plant, such as 100, or 0 for none")
    if strict and not verify:
        raise UsageError("--strict (strict=) is about the verification, which --no-verify (verify=False) leaves out")


def check_before(
    reader: plugins.Frontend,
    writer: plugins.Backend,
    options: Mapping[str, Any],
    *,
    source: Any,
    output: str | os.PathLike[str] | None,
    force: bool,
    verify: bool,
    device: str,
) -> None:
    """All checks that do not need the model.

    Raises:
        UsageError: with all wrong arguments.
        MissingFrameworkError: if the arguments are right and a framework is missing.
    """
    found: list[str] = []
    if output is not None:
        reasons = [obstacle(path, force, source_files(source)) for path in writer.written(Path(output), **options)]
        found += list(dict.fromkeys(filter(None, reasons)))[:1]
    try:
        writer.check_options(**options)
        if verify and device != "auto":
            from onnxbridge.runtime import devices

            devices.providers(device)
    except UsageError as e:
        found.append(str(e))
    if found:
        raise UsageError("; ".join(found))
    reader.require()
    writer.require(verify)


def check_names(hub: ir.Model, rtol: Any, atol: Any, bounds: Mapping[str, Any]) -> None:
    """Check that tolerances and bounds name outputs and dynamic sizes of the model.

    Raises:
        UsageError: for an unknown name, with those of the model.
    """
    outputs = [str(v.name) for v in hub.graph.outputs]
    for option, given in (("rtol", rtol), ("atol", atol)):
        unknown = [name for name in given if name not in outputs] if isinstance(given, Mapping) else []
        if unknown:
            raise UsageError(f"{option}: the model has no output {', '.join(map(repr, unknown))}; it has {', '.join(outputs)}")
    named = (d.value or "" for v in hub.graph.inputs for d in v.shape or () if not isinstance(d, int))
    sizes = list(dict.fromkeys(name for text in named for name in re.findall(r"[A-Za-z_]\w*", text)))  # "past + 1" has "past"
    unknown = [name for name in bounds if name not in sizes]
    if unknown:
        has = f"its dynamic sizes are {', '.join(sizes)}" if sizes else "it has none"
        raise UsageError(f"dynamic: the model has no dynamic size {', '.join(map(repr, unknown))}; {has}")
