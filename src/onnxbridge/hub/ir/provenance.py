"""Where a model comes from, in its own metadata: hashes and versions, never a machine's paths. Nodes' places are in `places`.

model.metadata_props   onnxbridge.version           the version that wrote the model
                       onnxbridge.source            the sources' base names, joined by ", "
                       onnxbridge.source.sha256     their SHA-256, joined by ", " in the same order
                       onnxbridge.framework.NAME    the version of a framework that took part
                       onnxbridge.sizes             the sizes that it holds for, "n=4..64", where it does not for all
                       onnxbridge.training          what was in training mode in the source, "Dropout, BatchNorm2d"
initializer's          onnxbridge.state             what it is in its source: a "parameter", which is trained, a "buffer",
                                                    or a "constant" that no state_dict has
                       onnxbridge.view              the weight that it is in another shape, as "gamma[96]"
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnxbridge.hub.io.safe_files import named, open_file

PREFIX = "onnxbridge."
SIZES = PREFIX + "sizes"
TRAINING = PREFIX + "training"
VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that give the elements of a weight in another shape."""
_VIEW = PREFIX + "view"
_STATE = PREFIX + "state"
_BOUNDS = re.compile(r"([^\s=]+)=([0-9]{1,18})\.\.([0-9]{1,18})?")
_CHUNK = 1 << 20


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, read in chunks; of a folder, that of its files' relative names and hashes in their order."""
    text = named(path)
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


def stamp(model: ir.Model, sources: Sequence[str | os.PathLike[str]] = (), frameworks: Iterable[str] = ()) -> None:
    """Write which files the model was made from, and by which versions of which installed packages."""
    notes = model.metadata_props
    notes[PREFIX + "version"] = _own_version()
    if sources:
        notes[PREFIX + "source"] = ", ".join(os.path.basename(os.path.normpath(named(s))) for s in sources)
        notes[PREFIX + "source.sha256"] = ", ".join(map(sha256, sources))
    for name in sorted(frameworks):
        notes[f"{PREFIX}framework.{name}"] = version_of(name)


@functools.cache
def _own_version() -> str:
    return importlib.metadata.version("onnxbridge")


def version_of(name: str) -> str:
    """The version of an imported framework, as it says itself: distributions may have another name (tensorflow-cpu)."""
    said = getattr(sys.modules.get(name), "__version__", None)
    return str(said) if said else importlib.metadata.version(name)


def tell_state(tensor: ir.TensorProtocol, state: str) -> None:
    """Write that an initializer is a "parameter", a "buffer" or a "constant" of its source."""
    tensor.metadata_props[_STATE] = state


def state_of(tensor: ir.TensorProtocol | None) -> str:
    """What `tell_state` wrote; empty where the source does not say it."""
    return str(getattr(tensor, "metadata_props", {}).get(_STATE, ""))


def is_fixed(tensor: ir.TensorProtocol | None) -> bool:
    """Whether the source says that an initializer is not trained."""
    return state_of(tensor) in ("buffer", "constant")


def inherit_state(made: ir.TensorProtocol | None, sources: Sequence[ir.TensorProtocol | None]) -> None:
    """Write what a tensor is that is computed from others: a parameter if one of them is, a constant if none is trained."""
    states = {state_of(tensor) for tensor in sources}
    if made is None or not states or states == {""}:
        return
    if "parameter" in states:
        tell_state(made, "parameter")
    elif "" not in states:
        tell_state(made, states.pop() if len(sources) == 1 else "constant")


def within_sizes(model: ir.Model, bounds: Mapping[str, tuple[int, int | None]]) -> dict[str, tuple[int, int | None]]:
    """Bounds of dynamic sizes, narrowed to those that the model says it holds for."""
    found = dict(bounds)
    for name, least, most in _BOUNDS.findall(model.metadata_props.get(SIZES, "").partition(" and ")[0]):
        low, high = found.get(name, (1, None))
        ends = [end for end in (high, int(most) if most else None) if end is not None]
        found[name] = max(low, int(least)), min(ends, default=None)
    return found


def tell_view(made: ir.Value, of: ir.Value) -> None:
    """Write of which weight, and of which shape of it, a constant has the elements."""
    notes = getattr(of.const_value, "metadata_props", {})
    if made.const_value is not None and of.const_value is not None and of.name:
        dims = ",".join(str(d) for d in of.const_value.shape.numpy())
        made.const_value.metadata_props[_VIEW] = notes.get(_VIEW) or f"{of.name}[{dims}]"
        if state := state_of(of.const_value):
            tell_state(made.const_value, state)


def view_of(tensor: ir.TensorProtocol) -> tuple[str, tuple[int, ...]] | None:
    """The name and the shape of the weight that a tensor has the elements of, where it says so and they fit."""
    name, _, dims = tensor.metadata_props.get(_VIEW, "").removesuffix("]").rpartition("[")
    numbers = dims.split(",") if dims else []
    if not name or not all(n.isdecimal() for n in numbers):
        return None
    shape = tuple(map(int, numbers))
    return (name, shape) if math.prod(shape) == tensor.size else None
