"""The lowest IR version that can represent a model, so that the oldest runtimes can load it.

The table follows the comments on `enum Version` in onnx.proto. Opsets are not considered, since checkers and runtimes check
them independently. Node metadata is not considered either, since readers skip unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from onnxbridge.hub.ir.graphs import every_graph

LOWEST = 3
_DTYPES = {
    4: ["BFLOAT16"],
    9: ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"],
    10: ["INT4", "UINT4"],
    11: ["FLOAT4E2M1"],
    12: ["FLOAT8E8M0"],
    13: ["INT2", "UINT2"],
    14: ["FLOAT6E2M3", "FLOAT6E3M2"],
}
_NEEDS = {ir.DataType[name]: version for version, names in _DTYPES.items() for name in names}
_DTYPE_ATTRIBUTES = {"to", "dtype", "output_dtype", "softmax_precision", "stash_type"}


def lowest_ir_version(model: ir.Model) -> int:
    """The lowest version that has all features the model uses."""
    return max(_needed(model), default=LOWEST)


def _needed(model: ir.Model) -> Iterator[int]:
    yield LOWEST
    for graph in every_graph(model):
        inputs = set(graph.inputs)
        for value in graph.initializers.values():
            # below version 4 every initializer has to be an input, which must not be fed
            if value not in inputs or model.ir_version >= 4:
                yield 4
            if value.const_value is not None:
                yield _NEEDS.get(value.const_value.dtype, LOWEST)
            yield from _of_value(value)
        for value in graph.inputs:
            yield from _of_value(value)
        for node in graph:
            for value in node.outputs:
                yield from _of_value(value)
            yield from _of_node(node)
    if model.device_configurations:
        yield 11
    for function in model.functions.values():
        yield 8
        if function.overload:
            yield 10
        if any(a.value is not None for a in function.attributes.values()):
            yield 9


def _of_value(value: ir.Value) -> Iterator[int]:
    kind = value.type
    if isinstance(kind, ir.OptionalType | ir.SparseTensorType):
        yield 8
    if kind is not None:
        yield _NEEDS.get(kind.dtype, LOWEST)
    if value.meta.get("quant_parameter_tensor_names"):
        yield 5


def _of_node(node: ir.Node) -> Iterator[int]:
    if node.overload:
        yield 10
    if node.device_configurations:
        yield 11
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.TENSOR:
            yield _NEEDS.get(attribute.as_tensor().dtype, LOWEST)
        elif name in _DTYPE_ATTRIBUTES and attribute.type == ir.AttributeType.INT:
            yield max((v for d, v in _NEEDS.items() if d.value == attribute.value), default=LOWEST)
