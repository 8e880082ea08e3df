"""What can be told to be wrong before a model is read: wrong targets and names, and files that cannot be written."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxbridge import plugins
from onnxbridge.atomic_write import obstacle
from onnxbridge.errors import UsageError

if TYPE_CHECKING:
    import onnx_ir as ir

_FOREIGN = {
    ".tflite": "convert to tensorflow, and the SavedModel with tf.lite.TFLiteConverter",
    ".keras": "TensorFlow models are written as a SavedModel, a folder; name one without a suffix",
    ".h5": "TensorFlow models are written as a SavedModel, a folder; name one without a suffix",
    ".pb": "TensorFlow models are written as a SavedModel, a folder; name one without a suffix",
    ".pt": "PyTorch models are written as .pt2 (torch.export) or .py (source)",
    ".pth": "PyTorch models are written as .pt2 (torch.export) or .py (source)",
    ".safetensors": "PyTorch models are written as .pt2 (torch.export), or as .py (source) with a .safetensors file beside it",
    ".engine": "convert to onnx, and the file with TensorRT",
    ".mlmodelc": "Core ML models are written as .mlpackage, which Xcode compiles",
}
"""Suffixes of formats that no backend writes, with the way to them."""


def target_of(to: str | None, output: str | os.PathLike[str] | None) -> str:
    """The backend's name: what was given, else what the output's suffix belongs to, else "onnx".

    Raises:
        UsageError: for a suffix of another backend's, or of a format that none writes.
    """
    suffix = "" if output is None else Path(output).suffix.lower()
    backends = {name: plugins.backend(name) for name in plugins.installed("backend")}
    owner = next((name for name, backend in backends.items() if suffix in (suffixes(backend) or ())), None)
    if to is None and owner is not None:
        return owner
    name = plugins.backend_name(to or "onnx")
    own = suffixes(backends[name])
    if own is None or suffix in own or not suffix:
        return name
    if suffix in _FOREIGN:
        raise UsageError(f"{Path(str(output)).name!r} cannot be written: {_FOREIGN[suffix]}")
    if owner is not None:
        usual = f"name it {' or '.join('*' + s for s in own)}" if own else "name it without a suffix"
        raise UsageError(f"{Path(str(output)).name!r} is a name for --to {owner}; for --to {name} {usual}")
    return name


def suffixes(backend: plugins.Backend) -> Sequence[str] | None:
    """The suffixes of what a backend writes, none where it writes names without one, None where it does not say."""
    return getattr(backend, "suffixes", None)


def source_files(source: Any, hub: ir.Model | None = None) -> list[Path]:
    """The files and folders that a source is read from, its external data and a factory's module included."""
    found: list[Path] = []
    for part in source if isinstance(source, (tuple, list)) else [source]:
        if not isinstance(part, (str, os.PathLike)):
            continue
        if os.path.exists(part):
            found.append(Path(part))
        elif isinstance(part, str) and ":" in part:
            found += _module_file(part.partition(":")[0])
    if hub is not None and found:
        from onnxbridge.hub.io.onnx_files import BESIDE

        found += [found[0].parent / location for location in hub.meta.get(BESIDE, ())]
    return found


def _module_file(name: str) -> list[Path]:
    """The file of a module, which is looked up and not imported."""
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return [Path(file)] if file else []
    path = Path(*name.split(".")).with_suffix(".py")
    return [base / path for base in map(Path, ["", *sys.path]) if (base / path).is_file()][:1]


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
    """Everything that can be told without the model.

    Raises:
        UsageError: with all that is wrong.
        MissingFrameworkError: if only that is.
    """
    found: list[str] = []
    if output is not None:
        written = getattr(writer, "written", lambda path, **options: [path])
        reasons = [obstacle(path, force, source_files(source)) for path in written(Path(output), **options)]
        found += list(dict.fromkeys(filter(None, reasons)))[:1]
    check = getattr(writer, "check_options", None)
    try:
        if check is not None:
            check(**options)
        if verify and device != "auto":
            from onnxbridge.runtime import devices

            devices.providers(device)
    except UsageError as e:
        found.append(str(e))
    if found:
        raise UsageError("; ".join(found))
    require(reader)
    require(writer, verify)


def require(plugin: plugins.Frontend | plugins.Backend, verify: bool = True) -> None:
    """Look whether what a plugin works with is installed, without importing it.

    Raises:
        MissingFrameworkError: if a framework is missing that the plugin cannot work without, or cannot `verify` without.
    """
    from onnxbridge import frameworks

    own = getattr(plugin, "require", None)
    if own is not None:
        own(verify)
    elif plugin.package and plugin.package not in sys.modules and importlib.util.find_spec(plugin.package) is None:
        frameworks.missing(plugin.package)


def check_names(hub: ir.Model, rtol: Any, atol: Any, bounds: Mapping[str, Any]) -> None:
    """Whether tolerances and bounds are of outputs and sizes that the model has.

    Raises:
        UsageError: with those that it has.
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
