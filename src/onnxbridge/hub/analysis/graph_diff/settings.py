"""The settings of a node: what determines its computation beside the tensors that it reads.

These are its attributes and small constant inputs such as axes, under the names of the operator's schema. So a node compares
equal before and after an opset in which an attribute became an input. An attribute at its default is the same as none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.hub.ir.schemas import array_of, attribute, schema_of
from onnxbridge.hub.ir.values import dtype_name

SMALL = 16
"""Integers, booleans and strings of at most this many elements are settings; floating-point numbers if they are scalars."""
Setting = Any
_GRAPHS = frozenset({ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS})


def constant_of(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of an initializer or of a Constant node; None for other values."""
    if value is None:
        return None
    if value.const_value is not None:
        return value.const_value
    node = value.producer()
    return _of_constant_node(node) if node is not None and is_constant(node) else None


def is_constant(node: ir.Node) -> bool:
    """Whether a node is a Constant, which is compared as a weight, wherever it is stored."""
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx") and _of_constant_node(node) is not None


def _of_constant_node(node: ir.Node) -> ir.TensorProtocol | None:
    for name, a in node.attributes.items():
        if a.is_ref():
            continue
        if name == "value":
            return a.as_tensor()
        if name in ("value_int", "value_ints"):
            return ir.tensor(np.asarray(a.value, np.int64))
        if name in ("value_float", "value_floats"):
            return ir.tensor(np.asarray(a.value, np.float32))
        if name in ("value_string", "value_strings"):
            return ir.tensor([a.value] if isinstance(a.value, str) else list(a.value), dtype=ir.DataType.STRING)
    return None


def is_setting(tensor: ir.TensorProtocol) -> bool:
    """Whether a constant is compared and shown by its elements, as an attribute is."""
    if tensor.size == 1 and len(tensor.shape) <= 1:
        return True
    kind = "O" if tensor.dtype == ir.DataType.STRING else np.dtype(tensor.dtype.numpy()).kind
    return tensor.size <= SMALL and len(tensor.shape) <= 1 and kind in "Oiub"


def settings(node: ir.Node, opsets: Mapping[str, int]) -> dict[str, Setting]:
    """The settings of a node by name, as hashable values. Subgraphs are none."""
    found = _attributes(node)
    names = input_names(node, opsets)
    for name, value in zip(names, node.inputs, strict=True):
        tensor = constant_of(value)
        if tensor is not None and is_setting(tensor):
            found[name] = elements(tensor)
    found = {name: _positive(node, v) if name in ("axis", "axes") else v for name, v in found.items()}
    stable = _stable_defaults(node.op_type, node.domain)
    explicit = {
        name: v for name, v in found.items() if repr(stable.get(name)) != repr(v) and not _is_implied(node, name, v)
    }  # fmt: skip
    changing = {n: v for n, v in defaults(node, opsets).items() if n not in stable and n not in found}
    return {**changing, **explicit}


def _is_implied(node: ir.Node, name: str, value: Setting) -> bool:
    """Whether an attribute of a convolution or pooling says what holds without it."""
    if name == "kernel_shape" and node.op_type.startswith("Conv"):
        weight = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
        return weight is not None and list(weight)[2:] == list(value)
    ones = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
    return name in ones and isinstance(value, tuple) and set(value) == {ones[name]}


def _positive(node: ir.Node, axes: Setting) -> Setting:
    """Axes counted from the first one, where the rank is known."""
    value = node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0]
    if value is None or value.shape is None:
        return axes
    rank = len(value.shape)
    if isinstance(axes, tuple):
        return tuple(a + rank if isinstance(a, int) and a < 0 else a for a in axes)
    return axes + rank if isinstance(axes, int) and axes < 0 else axes


def elements(tensor: ir.TensorProtocol) -> Setting:
    """The elements of a small tensor as a hashable value: a scalar or a tuple."""
    array = array_of(tensor)
    if array.dtype.kind == "c":
        array = array.astype(str)
    elif array.dtype.kind not in "OSUiubf":
        array = array.astype(np.float64)  # bfloat16 and float8
    return tuple(array.tolist()) if array.ndim else array.item()


def _plain(a: ir.Attr) -> Setting:
    if a.type == ir.AttributeType.TENSOR:
        tensor = a.as_tensor()
        if tensor.size <= SMALL and len(tensor.shape) <= 1:
            return elements(tensor)
        return f"{dtype_name(tensor.dtype)}{list(tensor.shape.numpy())} {_short_digest(tensor)}"
    if a.type in (ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING):
        return a.value
    if a.type in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
        return tuple(a.value)
    if a.type == ir.AttributeType.TENSORS:
        return tuple(_short_digest(t) for t in a.as_tensors())
    return str(a.value)


def _short_digest(tensor: ir.TensorProtocol) -> str:
    from onnxbridge.hub.analysis.graph_diff.weights import digest

    return digest(tensor).hex()[:12]


def attributes(node: ir.Node, opsets: Mapping[str, int]) -> dict[str, Setting]:
    """All attributes of a node, with the defaults of those that it does not state."""
    return {**defaults(node, opsets), **_attributes(node)}


def defaults(node: ir.Node, opsets: Mapping[str, int]) -> Mapping[str, Setting]:
    """The defaults of an operator's attributes at its opset."""
    return _defaults(_schema(node.op_type, node.domain, opsets.get(node.domain, 1)))


def _attributes(node: ir.Node) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for name, a in node.attributes.items():
        if a.is_ref():
            found[name] = f"the function's {a.ref_attr_name}"
        elif a.type not in _GRAPHS:
            found[name] = _plain(a)
    return found


@functools.cache
def _stable_defaults(op_type: str, domain: str) -> Mapping[str, Setting]:
    """The defaults of attributes that are the same in every version of the operator."""
    name = "" if domain == "ai.onnx" else domain
    found: dict[str, set[str]] = {}
    values: dict[str, Setting] = {}
    for schema in _versions().get((op_type, name), ()):
        for attr, value in _defaults(schema).items():
            found.setdefault(attr, set()).add(repr(value))
            values[attr] = value
    return {attr: value for attr, value in values.items() if len(found[attr]) == 1}


@functools.cache
def _versions() -> Mapping[tuple[str, str], list[onnx.defs.OpSchema]]:
    found: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.name, schema.domain), []).append(schema)
    return found


def _defaults(schema: onnx.defs.OpSchema | None) -> Mapping[str, Setting]:
    if schema is None:
        return {}
    found = {name: attribute(a.default_value) for name, a in schema.attributes.items() if a.default_value.type}
    return {name: tuple(v) if isinstance(v, list) else v for name, v in found.items() if not isinstance(v, np.ndarray)}


@functools.cache
def _schema(op_type: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    try:
        return schema_of(op_type, "" if domain == "ai.onnx" else domain, opset)
    except ValueError:
        return None


@functools.cache
def _formal_names(op_type: str, domain: str, opset: int) -> tuple[str, ...]:
    schema = _schema(op_type, domain, opset)
    return () if schema is None else tuple(i.name for i in schema.inputs)


def input_names(node: ir.Node, opsets: Mapping[str, int]) -> list[str]:
    """The schema's name of each input of a node; "input 3" for those without one."""
    known = _formal_names(node.op_type, node.domain, opsets.get(node.domain, 1))
    return [known[i] if i < len(known) else f"input {i}" for i in range(len(node.inputs))]
