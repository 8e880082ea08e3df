"""Where a node comes from, kept in its `metadata_props` under two keys, relative and without machine paths.

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

from onnxbridge.errors import Source

SOURCE, SCOPE, NODE = "onnxbridge.source", "onnxbridge.scope", "onnxbridge.node"
CLASSES = "onnxbridge.classes"
"""In a model: the classes of its modules that are not the framework's own, as JSON, by their paths."""
_EXPORTED = "pkg.torch.onnx.name_scopes"
"""Where torch.onnx keeps the paths of the modules around an operator, the outermost first, and then the operator's name."""

_KINDS = "pkg.torch.onnx.class_hierarchy"
"""Where it keeps their classes."""


def write(node: ir.Node, where: Source) -> None:
    """Keep `where` with the node."""
    if where.file:
        node.metadata_props[SOURCE] = f"{where.file}:{where.line}"
    if where.scope:
        node.metadata_props[SCOPE] = where.scope
    if where.node:
        node.metadata_props[NODE] = where.node


def read(node: ir.Node) -> Source:
    """The place that the node carries; nodes of a plain ONNX file have only their name, and what torch.onnx tells of modules."""
    file, _, line = node.metadata_props.get(SOURCE, "").rpartition(":")
    name = node.metadata_props.get(NODE) or node.name or next((o.name for o in node.outputs if o.name), "")
    around = re.findall(r"'([^']*)'", node.metadata_props.get(_EXPORTED, ""))[:-1]
    scope = node.metadata_props.get(SCOPE) or (around[-1] if around else "")
    return Source(file, int(line) if line.isdigit() else 0, scope, name or "")


def classes(model: ir.Model) -> dict[str, str]:
    """The names of the classes of the source's modules, as far as they are told, by the modules' paths."""
    try:
        held = json.loads(model.metadata_props.get(CLASSES, "{}"))
        found = {str(path): str(kind) for path, kind in held.items()}
    except (ValueError, AttributeError):
        found = {}
    for node in model.graph:
        around, kinds = (node.metadata_props.get(key) for key in (_EXPORTED, _KINDS))
        if around and kinds:
            found.update(_classes(around, kinds))
    return {path: kind for path, kind in found.items() if kind.isascii() and kind.isidentifier() and not keyword.iskeyword(kind)}


def tells_classes(model: ir.Model) -> bool:
    """Whether `classes` has every module whose class is not the framework's own."""
    return CLASSES in model.metadata_props or any(_KINDS in node.metadata_props for node in model.graph)


@functools.lru_cache(maxsize=4096)
def _classes(around: str, kinds: str) -> Mapping[str, str]:
    pairs = zip(re.findall(r"'([^']*)'", around)[:-1], re.findall(r"'([^']*)'", kinds)[:-1], strict=False)
    return {path: kind.rpartition(".")[2] for path, kind in pairs if "." in kind and not is_layer(kind)}


def is_layer(kind: str) -> bool:
    """Whether a class is one of torch.nn's that are no composition of others."""
    composed = ("torch.nn.modules.transformer.", "torch.nn.modules.activation.MultiheadAttention")
    return kind.startswith("torch.nn.") and not kind.startswith(composed)


def relative(path: str) -> str:
    """A source file's path relative to the working directory, its bare name where it lies elsewhere."""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return os.path.basename(path)
    return os.path.basename(path) if short.startswith("..") else short
