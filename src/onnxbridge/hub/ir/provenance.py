"""Provenance metadata of a model: hashes and versions, no file system paths. Locations of nodes are in `source_locations`.

model.metadata_props   onnxbridge.version           the onnxbridge version that wrote the model
                       onnxbridge.source            base names of the sources, joined by ", "
                       onnxbridge.source.sha256     their SHA-256, joined by ", " in the same order
                       onnxbridge.framework.NAME    the version of a framework that was used
                       onnxbridge.sizes             the sizes that the model is valid for, "n=4..64", if not for all
                       onnxbridge.training          layers in training mode in the source, "Dropout, BatchNorm2d"
initializer's          onnxbridge.state             "parameter" (trained), "buffer", or "constant" (not in a state_dict)
                       onnxbridge.view              the weight that it is a reshaped view of, as "gamma[96]"
                       onnxbridge.parts             the weights that a recurrent layer's weight is made of, joined by ", "
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnxbridge.hub.io.safe_files import checked_path, open_file

PREFIX = "onnxbridge."
SIZES = PREFIX + "sizes"
TRAINING = PREFIX + "training"
VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that only reshape a weight."""
_VIEW = PREFIX + "view"
_PARTS = PREFIX + "parts"
_STATE = PREFIX + "state"
_BOUNDS = re.compile(r"([^\s=]+)=([0-9]{1,18})\.\.([0-9]{1,18})?")
_CHUNK = 1 << 20


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, or for a folder of the sorted relative names and hashes of its files."""
    text = checked_path(path)
    if os.path.isdir(text):
        lines = []
        for folder, _, names in os.walk(text):
            for file in (os.path.join(folder, name) for name in names):
                lines.append(f"{os.path.relpath(file, text).replace(os.sep, '/')}\\0{sha256(file)}\\n")
        return hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
    digest = hashlib.sha256()
    with open(open_file(text), "rb") as content:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def stamp(model: ir.Model, sources: Sequence[str | os.PathLike[str]] = (), frameworks: Mapping[str, str] | None = None) -> None:
    """Record the source files of a model and the versions of the frameworks that read it, by package."""
    notes = model.metadata_props
    notes[PREFIX + "version"] = _own_version()
    if sources:
        notes[PREFIX + "source"] = ", ".join(os.path.basename(os.path.normpath(checked_path(s))) for s in sources)
        notes[PREFIX + "source.sha256"] = ", ".join(map(sha256, sources))
    for name, version in sorted((frameworks or {}).items()):
        notes[f"{PREFIX}framework.{name}"] = version


@functools.cache
def _own_version() -> str:
    return importlib.metadata.version("onnxbridge")


def version_of(name: str) -> str:
    """The `__version__` of an imported framework, since its distribution may have another name (tensorflow-cpu)."""
    version = getattr(sys.modules.get(name), "__version__", None)
    return str(version) if version else importlib.metadata.version(name)


def set_state(tensor: ir.TensorProtocol, state: str) -> None:
    """Record whether an initializer is a "parameter", a "buffer" or a "constant" in its source."""
    tensor.metadata_props[_STATE] = state


def state_of(tensor: ir.TensorProtocol | None) -> str:
    """The recorded state of an initializer; empty if unknown."""
    return str(getattr(tensor, "metadata_props", {}).get(_STATE, ""))


def is_fixed(tensor: ir.TensorProtocol | None) -> bool:
    """Whether an initializer is recorded as not trained."""
    return state_of(tensor) in ("buffer", "constant")


def inherit_state(result: ir.TensorProtocol | None, sources: Sequence[ir.TensorProtocol | None]) -> None:
    """Record the state of a tensor computed from others: a parameter if one of them is, a constant if none is trained."""
    states = {state_of(tensor) for tensor in sources}
    if result is None or not states or states == {""}:
        return
    if "parameter" in states:
        set_state(result, "parameter")
    elif "" not in states:
        set_state(result, states.pop() if len(sources) == 1 else "constant")


def within_sizes(model: ir.Model, bounds: Mapping[str, tuple[int, int | None]]) -> dict[str, tuple[int, int | None]]:
    """Bounds of dynamic sizes, intersected with those that the model is valid for."""
    found = dict(bounds)
    for name, least, most in _BOUNDS.findall(model.metadata_props.get(SIZES, "").partition(" and ")[0]):
        low, high = found.get(name, (1, None))
        ends = [end for end in (high, int(most) if most else None) if end is not None]
        found[name] = max(low, int(least)), min(ends, default=None)
    return found


def set_view(result: ir.Value, of: ir.Value) -> None:
    """Record that a constant is a reshaped view of a weight."""
    notes = getattr(of.const_value, "metadata_props", {})
    if result.const_value is not None and of.const_value is not None and of.name:
        dims = ",".join(str(d) for d in of.const_value.shape.numpy())
        result.const_value.metadata_props[_VIEW] = notes.get(_VIEW) or f"{of.name}[{dims}]"
        if state := state_of(of.const_value):
            set_state(result.const_value, state)


def view_of(tensor: ir.TensorProtocol) -> tuple[str, tuple[int, ...]] | None:
    """The name and the shape of the weight that a tensor is a view of, None if it is not recorded or does not match."""
    name, _, dims = tensor.metadata_props.get(_VIEW, "").removesuffix("]").rpartition("[")
    numbers = dims.split(",") if dims else []
    if not name or not all(n.isdecimal() for n in numbers):
        return None
    shape = tuple(map(int, numbers))
    return (name, shape) if math.prod(shape) == tensor.size else None


def set_parts(result: ir.TensorProtocol, names: Sequence[str]) -> None:
    """Record the names of the parameters that the weight of a recurrent layer is made of: for each direction, those that are
    concatenated, with their gates in ONNX's order."""
    result.metadata_props[_PARTS] = ", ".join(names)
    set_state(result, "parameter")


def parts_of(tensor: ir.TensorProtocol) -> tuple[str, ...]:
    """The names recorded by `set_parts`; empty if there are none."""
    return tuple(name for name in tensor.metadata_props.get(_PARTS, "").split(", ") if name)
