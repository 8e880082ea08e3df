"""Compares nodes with the schemas of their operators: inputs, outputs and attributes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import onnx

from onnxbridge.errors import UnsafeFileError
from onnxbridge.hub.io.safe_files import quoted


def check_schemas(
    graph: onnx.GraphProto | onnx.FunctionProto, path: str, opsets: Mapping[str, int], functions: Collection[tuple[str, str]]
) -> None:
    """Refuse standard operators without the inputs and attributes that they need, and with others than they have.

    `opsets` are the versions of the domains; operators that the model itself defines (`functions`) are left out.
    """
    for node in graph.node:
        if node.domain in opsets and (node.domain, node.op_type) not in functions:
            schema = _schema(node.op_type, node.domain, opsets[node.domain])
            wrong = _what_is_wrong(node, schema) if schema is not None else ""
            if wrong:
                raise UnsafeFileError(f"{path}: the {node.op_type} {quoted(node.name)} {wrong}; export the model again.")
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                check_schemas(inner, path, opsets, functions)


def _what_is_wrong(node: onnx.NodeProto, schema: _Schema) -> str:
    """How a node differs from the schema of its operator, "" if it does not."""
    if len(node.input) < schema.least or not all(node.input[i] for i in schema.needed):
        return f"lacks an input: it needs {schema.least}"
    if len(node.input) > schema.most or len(node.output) > schema.most_outputs:
        return f"has {len(node.input)} inputs and {len(node.output)} outputs, more than the operator has"
    given = {attribute.name for attribute in node.attribute}
    for name in schema.required:
        if name not in given:
            return f"lacks the attribute {name}"
    for attribute in node.attribute:
        kind = schema.kinds.get(attribute.name, attribute.type)
        if attribute.type != kind and not attribute.ref_attr_name:
            return f"has an attribute {attribute.name} of the type {_kind(attribute.type)} in the place of {_kind(kind)}"
    return ""


def _kind(number: int) -> str:
    return str(onnx.AttributeProto.AttributeType.Name(number))


@dataclass(frozen=True)
class _Schema:
    """What a standard operator needs and allows.

    Optional inputs at the end may be missing, also those that the schema counts among the least (of Loop).
    """

    needed: Collection[int]
    least: int
    most: int
    most_outputs: int
    required: Collection[str]
    kinds: Mapping[str, int]


@functools.cache
def _schema(op_type: str, domain: str, opset: int) -> _Schema | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    option = onnx.defs.OpSchema.FormalParameterOption
    needed = [i for i, parameter in enumerate(schema.inputs) if parameter.option == option.Single]
    variadic = [i + p.min_arity for i, p in enumerate(schema.inputs) if p.option == option.Variadic and p.min_arity]
    least = max([*(i + 1 for i in needed), *variadic], default=0)
    required = [name for name, attribute in schema.attributes.items() if attribute.required]
    kinds = {name: int(attribute.type) for name, attribute in schema.attributes.items()}  # type: ignore[call-overload]
    return _Schema(needed, least, schema.max_input, schema.max_output, required, kinds)
