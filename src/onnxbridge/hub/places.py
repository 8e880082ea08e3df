"""Where a node comes from, kept in its `metadata_props` under two keys, relative and without machine paths.

`onnxbridge.source` is "net.py:22", `onnxbridge.scope` the module or function path ("encoder.layer.0"), `onnxbridge.node` the
source framework's own name of the operator.
"""

from __future__ import annotations

import os
import re

import onnx_ir as ir

from onnxbridge.errors import Source

SOURCE, SCOPE, NODE = "onnxbridge.source", "onnxbridge.scope", "onnxbridge.node"
_EXPORTED = "pkg.torch.onnx.name_scopes"
"""Where torch.onnx keeps the paths of the modules around an operator, the outermost first, and then the operator's name."""


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


def relative(path: str) -> str:
    """A source file's path relative to the working directory, its bare name where it lies elsewhere."""
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return os.path.basename(path)
    return os.path.basename(path) if short.startswith("..") else short
