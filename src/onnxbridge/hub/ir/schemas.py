"""ONNX operator schemas at the hub's opset, for checking nodes and for binding rule arguments."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.hub.ir import strings
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.lowering import Schema

_DOMAINS = {"": OPSET, "ai.onnx.ml": 5}


def version_of(domain: str) -> int:
    """The version at which the hub imports a domain."""
    return _DOMAINS.get(domain, 1)


@functools.cache
def schema_of(op_type: str, domain: str = "", opset: int | None = None) -> onnx.defs.OpSchema:
    """The operator's schema at the hub's version of its domain, or at `opset`.

    Raises:
        ValueError: if the operator does not exist at that version.
    """
    version = version_of(domain) if opset is None else opset
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError as e:
        raise ValueError(f"ONNX has no operator {name_of(op_type, domain)} at opset {version}") from e


def unchanged_at(op_type: str, opset: int) -> bool:
    """Whether the operator has the same inputs and attributes at an opset of ai.onnx as in the hub."""
    try:
        other, hub = schema_of(op_type, opset=opset), schema_of(op_type)
    except ValueError:
        return False
    return len(other.inputs) == len(hub.inputs) and set(other.attributes) == set(hub.attributes)


def name_of(op_type: str, domain: str) -> str:
    """The operator's name in rule tables and reports: bare in ai.onnx, "domain::Name" elsewhere."""
    return f"{domain}::{op_type}" if domain not in ("", "ai.onnx") else op_type


@functools.cache
def binding_of(op_type: str, domain: str = "") -> Schema | None:
    """Parameter names and defaults for binding; None for an operator that is not in the standard."""
    try:
        schema = schema_of(op_type, domain)
    except ValueError:
        return None
    defaults = {name: attribute(a.default_value) for name, a in schema.attributes.items() if a.default_value.type}
    return Schema(tuple(i.name for i in schema.inputs), defaults)


def attribute(proto: onnx.AttributeProto) -> Any:
    """A schema's attribute default as the Python value passed to rules."""
    return plain(ir.serde.deserialize_attribute(proto))


def plain(attr: ir.Attr) -> Any:
    """An attribute as the Python value passed to rules: tuples for lists, arrays for tensors."""
    value = attr.value
    if attr.type == ir.AttributeType.TENSOR:
        return array_of(value)
    if attr.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return tuple(value)
    if attr.type == ir.AttributeType.TENSORS:
        return tuple(map(array_of, value))
    return value


def array_of(tensor: ir.TensorProtocol) -> np.ndarray[Any, Any]:
    """A tensor as a NumPy array; strings as `str`, not as bytes."""
    if tensor.dtype != ir.DataType.STRING:
        return np.asarray(tensor.numpy())
    raw = tensor.string_data() if isinstance(tensor, ir.StringTensor) else tensor.numpy().reshape(-1).tolist()
    return strings.decoded(np.array(raw, dtype=object).reshape(tuple(tensor.shape.numpy())))
