"""One adapter on one node: its inputs and attributes bound to the adapter's parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub.ir import source_locations
from onnxbridge.hub.ir.builder import Builder
from onnxbridge.hub.ir.schemas import plain
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.known_values import known
from onnxbridge.lowering import Call, Ref, bind
from onnxbridge.rules import Rule, Rules


def results_of(node: ir.Node, adapter: Rule, version: int, writer: Builder) -> Any:
    """What an adapter writes for a node of one version."""
    name = schema_versions.name_of(node)
    inputs: Iterable[Any] = (None if v is None else Ref(v) for v in node.inputs)
    attrs = {a.name: _attribute(a) for a in node.attributes.values() if a.name != "consumed_inputs"}
    used = tuple(v if v.name and (v.uses() or v.is_graph_output()) else None for v in node.outputs)
    call = Call(name, tuple(inputs), attrs, used, source_locations.read(node), schema_versions.binding(name, version))
    args, keywords = bind(adapter, call, _Itself(), _Static(), _NO_RULES)
    return adapter.lower(writer, *args, **keywords)


class _Itself(dict[Any, Any]):
    """Values of a walk in place: every value stands for itself."""

    def __missing__(self, key: Any) -> Any:
        return key


class _Static:
    """What the walker's binding asks for the value of an input."""

    def static(self, key: Any, value: Any) -> np.ndarray[Any, Any] | None:
        return known(value)


def _attribute(attr: ir.Attr) -> Any:
    if attr.is_ref():
        raise Unsupported(f"the attribute {attr.name!r} is set by the function's caller", "inline the model's functions first")
    return attr.as_graph() if attr.type == ir.AttributeType.GRAPH else plain(attr)


_NO_RULES = Rules("hub.adapters")
