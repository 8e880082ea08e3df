"""Applies an adapter to a node: binds the node's inputs and attributes to the adapter's parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.known_values import known
from onnxbridge.lowering import Call, Ref, bind
from onnxbridge.rules import Rule


def results_of(node: ir.Node, adapter: Rule, version: int, writer: Builder) -> Any:
    """The values that an adapter computes for the outputs of a node at the given version."""
    name = schema_versions.name_of(node)
    inputs: Iterable[Any] = (None if v is None else Ref(v) for v in node.inputs)
    attrs = {a.name: _attribute(a) for a in node.attributes.values() if a.name != "consumed_inputs"}
    used = tuple(v if v.name and (v.uses() or v.is_graph_output()) else None for v in node.outputs)
    call = Call(name, tuple(inputs), attrs, used, source_locations.read(node), schema_versions.binding(name, version))
    args, keywords = bind(adapter, call, _resolve, lambda ref: known(ref.key))  # type: ignore[arg-type]
    return adapter.lower(writer, *args, **keywords)


def _resolve(item: Any) -> Any:
    """The value of a reference: adapters work on the hub values themselves."""
    return item.key if isinstance(item, Ref) else item


def _attribute(attr: ir.Attr) -> Any:
    if attr.is_ref():
        raise Unsupported(f"the attribute {attr.name!r} is set by the function's caller", "inline the model's functions first")
    return attr.as_graph() if attr.type == ir.AttributeType.GRAPH else plain(attr)
