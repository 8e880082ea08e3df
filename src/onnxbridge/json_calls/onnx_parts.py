"""ONNX's messages from descriptions in JSON.

The key "part" says which: a tensor, a value's type (value_info), an attribute, a node, a graph or a model. The other keys are the
parameters of `onnx.helper`'s functions make_tensor, make_tensor_value_info and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import helper, numpy_helper

from onnxbridge.errors import UsageError, first_line
from onnxbridge.json_calls.arrays import decoded

Part = dict[str, Any]

OPSET, IR_VERSION = 22, 10
"""Of a model that does not say them: what runtimes of the last years accept."""


_OTHER_NAMES = {
    "float32": "FLOAT", "float64": "DOUBLE", "integer": "INT32", "numeric": "DOUBLE", "logical": "BOOL", "character": "STRING",
}  # fmt: skip


def dtype_of(name: str | int) -> int:
    """The number of a data type: 1, "FLOAT", "float" or "float32".

    Raises:
        UsageError: if there is none of this name.
    """
    numbers = dict(onnx.TensorProto.DataType.items())
    if isinstance(name, int):
        if name and name in numbers.values():
            return name
    else:
        found = numbers.get(_OTHER_NAMES.get(name.lower(), name.upper()))
        if found:
            return int(found)
    raise UsageError(f"{name!r} is no data type; the names are {', '.join(n.lower() for n in numbers if n != 'UNDEFINED')}")


def tensor_of(part: Part) -> onnx.TensorProto:
    dtype, dims = dtype_of(part["data_type"]), [int(d) for d in part["dims"]]
    values = decoded(part["vals"], part["name"]).reshape(-1, order="F")
    if values.size != np.prod(dims, dtype=np.int64):
        raise UsageError(f"the tensor {part['name']!r} has {values.size} values, and its shape is {dims}")
    array = values.reshape(dims, order="F")
    if dtype != onnx.TensorProto.STRING:
        array = np.ascontiguousarray(array).astype(helper.tensor_dtype_to_np_dtype(dtype))
    return numpy_helper.from_array(array, part["name"])


def value_of(part: Part) -> onnx.ValueInfoProto:
    shape = None if part.get("shape") is None else [d if isinstance(d, str) else int(d) for d in part["shape"]]
    return helper.make_tensor_value_info(part["name"], dtype_of(part["elem_type"]), shape, part.get("doc_string") or "")


def attribute_of(part: Part, declared: int = 0) -> onnx.AttributeProto:
    """An attribute: `values` are texts of numbers ("int", "float"), texts ("string") or parts ("part"), as `kind` says.

    `single` is whether it is one value and no list. The type that the operator declares goes before both: languages without whole
    numbers send 1.0 for 1.
    """
    readers: dict[str, Callable[[Any], Any]] = {"int": _whole, "float": float, "string": str, "part": part_of}
    kind, single = part["kind"], part["single"]
    kinds: dict[int, str] = {
        onnx.AttributeProto.INT: "int", onnx.AttributeProto.FLOAT: "float", onnx.AttributeProto.INTS: "int",
        onnx.AttributeProto.FLOATS: "float",
    }  # fmt: skip
    if kind in ("int", "float"):
        kind = kinds.get(declared, kind)
    if declared in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS, onnx.AttributeProto.STRINGS):
        single = False
    try:
        values = [readers[kind](v) for v in part["values"]]
    except ValueError as error:
        raise UsageError(f"the attribute {part['key']!r}: {error}") from error
    doc, given = part.get("doc_string") or None, kind in ("int", "float") and not single
    form = {"int": onnx.AttributeProto.INTS, "float": onnx.AttributeProto.FLOATS}[kind] if given else None
    return helper.make_attribute(part["key"], values[0] if single else values, doc, form)


def _whole(text: Any) -> int:
    number = float(text)
    if number != int(number):
        raise ValueError(f"{text} is no integer")
    return int(number)


def _declared(part: Part) -> dict[str, int]:
    """The types of the attributes that ONNX's operator declares, by name."""
    try:
        schema = onnx.defs.get_schema(part["op_type"], domain=part.get("domain") or "")
    except onnx.defs.SchemaError:
        return {}
    types: dict[str, Any] = {name: attribute.type for name, attribute in schema.attributes.items()}
    return {name: int(kind.value) for name, kind in types.items()}


def node_of(part: Part) -> onnx.NodeProto:
    declared = _declared(part)
    node = helper.make_node(
        part["op_type"], part["inputs"], part["outputs"], part.get("name") or None, part.get("doc_string") or None,
        part.get("domain") or None,
    )  # fmt: skip
    node.attribute.extend(attribute_of(a, declared.get(a["key"], 0)) for a in part.get("attributes", []))
    return node


def graph_of(part: Part) -> onnx.GraphProto:
    return helper.make_graph(
        [node_of(n) for n in part["nodes"]], part["name"], [value_of(v) for v in part["inputs"]],
        [value_of(v) for v in part["outputs"]], [tensor_of(t) for t in part.get("initializer", [])],
        part.get("doc_string") or None, [value_of(v) for v in part.get("value_info", [])],
    )  # fmt: skip


def model_of(part: Part) -> onnx.ModelProto:
    given = part.get("opsets") or [{"domain": "", "version": OPSET}]
    opsets = [helper.make_opsetid(o["domain"], int(o["version"])) for o in given]
    version = int(part.get("ir_version") or IR_VERSION)
    return helper.make_model(graph_of(part["graph"]), opset_imports=opsets, ir_version=version, producer_name="onnxbridge")


MAKERS: dict[str, Callable[[Part], Message]] = {
    "tensor": tensor_of, "value_info": value_of, "attribute": attribute_of, "node": node_of, "graph": graph_of, "model": model_of,
}  # fmt: skip


def part_of(part: Part) -> Message:
    """The message that a description stands for.

    Raises:
        UsageError: if it cannot be made.
    """
    try:
        return MAKERS[part["part"]](part)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"the {part.get('part', 'part')} cannot be made: {first_line(error)}") from error
