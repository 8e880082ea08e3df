"""Finds the adapter of a node's next step towards an opset, and reads the node as the call that the adapter is bound to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.adapters import down, up
from onnxbridge.lowering import Call, Ref
from onnxbridge.rules import Rule


@dataclass(frozen=True)
class Step:
    """An adapter, the version of the operator that it converts from, and the opset that it writes at."""

    adapter: Rule
    version: int
    to: int


def next_adapter(node: ir.Node, version: int, goal: int, check_dtypes: bool = False) -> Step | None:
    """The first step between two opsets that needs an adapter; None if the node is valid at `goal` as it is.

    Steps between compatible versions are made in place: attributes that the next version does not have are removed. The dtypes
    are checked after such a step, or if `check_dtypes`.

    Raises:
        Unsupported: if the node needs an adapter that does not exist, or a dtype that `goal` does not support.
    """
    name = schema_versions.name_of(node)
    since = schema_versions.since(name, version)
    if since is None:
        raise Unsupported(schema_versions.missing_reason(name, version))
    found = (_upwards if version <= goal else _downwards)(node, name, since, goal)
    if isinstance(found, Step):
        return found
    if (check_dtypes or found != since) and (reason := schema_versions.wrong_dtype(node, found)):
        raise Unsupported(reason)
    return None


def _upwards(node: ir.Node, name: str, version: int, goal: int) -> Step | int:
    """The next step, or without one the version of the operator at `goal`."""
    for new in (v for v in schema_versions.history(name) if version < v <= goal):
        if (adapter := up.get(name, new)) is not None:
            return Step(adapter, version, new)
        if reason := schema_versions.upward(node, version, new):
            raise Unsupported(f"{reason} in opset {new}")
        version = new
    return version


def _downwards(node: ir.Node, name: str, version: int, goal: int) -> Step | int:
    first = schema_versions.first(name)
    if first > goal and not any(down.get(name, v - 1) for v in schema_versions.history(name) if v > goal):
        raise Unsupported(f"added in {'ai.onnx.ml' if '::' in name else 'opset'} {first}")
    older = sorted((v for v in schema_versions.history(name) if first <= v < version), reverse=True)
    while version > goal:
        if (adapter := down.get(name, version - 1)) is not None:
            return Step(adapter, version, version - 1)
        if not older:
            raise Unsupported(f"added in opset {version}")
        reason, redundant = schema_versions.downward(node, version, old := older.pop(0))
        if reason:
            raise Unsupported(reason)
        for attribute in redundant:
            del node.attributes[attribute]
        version = old
    return version


def call_of(node: ir.Node, version: int | None = None) -> Call:
    """A node as a call with the schema and attributes of this version, if there is one; subgraphs stay graphs.

    Raises:
        Unsupported: if an attribute is a reference to one of the function's.
    """
    name = schema_versions.name_of(node)
    inputs = tuple(None if v is None else Ref(v) for v in node.inputs)
    used = tuple(v if v.name and (v.uses() or v.is_graph_output()) else None for v in node.outputs)
    if version is None:
        return Call(name, inputs, {}, used, source_locations.read(node))
    attrs = {a.name: _attribute(a) for a in node.attributes.values() if a.name != "consumed_inputs"}
    return Call(name, inputs, attrs, used, source_locations.read(node), schema_versions.binding(name, version))


def _attribute(attr: ir.Attr) -> Any:
    if attr.is_ref():
        raise Unsupported(f"the attribute {attr.name!r} is set by the function's caller", "inline the model's functions first")
    return attr.as_graph() if attr.type == ir.AttributeType.GRAPH else plain(attr)
