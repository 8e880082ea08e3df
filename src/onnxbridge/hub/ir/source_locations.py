"""Source locations of nodes, stored in their `metadata_props`, relative and without absolute paths.

`onnxbridge.source` is "net.py:22", `onnxbridge.scope` the module or function path ("encoder.layer.0"), `onnxbridge.node` the
source framework's own name of the operator.
"""

from __future__ import annotations

import functools
import json
import keyword
import os
import re
from collections.abc import Mapping

import onnx_ir as ir

from onnxbridge.errors import SourceLocation

SOURCE, SCOPE, NODE = "onnxbridge.source", "onnxbridge.scope", "onnxbridge.node"
CLASSES = "onnxbridge.classes"
"""Metadata key of a model: classes of its modules that are not the framework's own, as JSON, by module path."""
_EXPORTED = "pkg.torch.onnx.name_scopes"
"""Metadata key of torch.onnx: paths of the modules that contain an operator, outermost first, then the operator's name."""

_KINDS = "pkg.torch.onnx.class_hierarchy"
"""Metadata key of torch.onnx: their classes."""


def write(node: ir.Node, where: SourceLocation) -> None:
    """Store a location in a node."""
    if where.file:
        node.metadata_props[SOURCE] = f"{where.file}:{where.line}"
    if where.scope:
        node.metadata_props[SCOPE] = where.scope
    if where.node:
        node.metadata_props[NODE] = where.node


def read(node: ir.Node) -> SourceLocation:
    """The location stored in a node; nodes of other ONNX files have their name, and module paths if torch.onnx wrote them."""
    file, _, line = node.metadata_props.get(SOURCE, "").rpartition(":")
    name = node.metadata_props.get(NODE) or node.name or next((o.name for o in node.outputs if o.name), "")
    around = re.findall(r"'([^']*)'", node.metadata_props.get(_EXPORTED, ""))[:-1]
    scope = node.metadata_props.get(SCOPE) or (around[-1] if around else "")
    return SourceLocation(file, int(line) if line.isdigit() else 0, scope, name or "")


def classes(model: ir.Model) -> dict[str, str]:
    """The known class names of the source's modules, by module path."""
    try:
        stored = json.loads(model.metadata_props.get(CLASSES, "{}"))
        found = {str(path): str(kind) for path, kind in stored.items()}
    except (ValueError, AttributeError):
        found = {}
    for node in model.graph:
        around, kinds = (node.metadata_props.get(key) for key in (_EXPORTED, _KINDS))
        if around and kinds:
            found.update(_classes(around, kinds))
    return {path: kind for path, kind in found.items() if kind.isascii() and kind.isidentifier() and not keyword.iskeyword(kind)}


def has_classes(model: ir.Model) -> bool:
    """Whether `classes` is complete for modules whose class is not the framework's own."""
    return CLASSES in model.metadata_props or any(_KINDS in node.metadata_props for node in model.graph)


@functools.lru_cache(maxsize=4096)
def _classes(around: str, kinds: str) -> Mapping[str, str]:
    pairs = zip(re.findall(r"'([^']*)'", around)[:-1], re.findall(r"'([^']*)'", kinds)[:-1], strict=False)
    return {path: kind.rpartition(".")[2] for path, kind in pairs if "." in kind and not is_layer(kind)}


def is_layer(kind: str) -> bool:
    """Whether a class is a torch.nn layer that is not composed of others."""
    composed = ("torch.nn.modules.transformer.", "torch.nn.modules.activation.MultiheadAttention")
    return kind.startswith("torch.nn.") and not kind.startswith(composed)


def relative(path: str) -> str:
    """A source file's path relative to the working directory, or its base name if it is outside of it."""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return os.path.basename(path)
    return os.path.basename(path) if short.startswith("..") else short
