"""Decompositions from the function bodies of the ONNX standard, for operators without one of onnxbridge's own."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from onnxbridge.errors import Unsupported
from onnxbridge.hub import passes
from onnxbridge.hub.ir import graph_reader, inference
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.schemas import schema_of
from onnxbridge.hub.opset import decompose_for_opset, opset_conversion, schema_versions
from onnxbridge.lowering import Body, Call, Ref


def function_body_of(call: Call) -> Body | None:
    """The function body of a call whose input keys are hub values, at the hub's opset; None if the standard has none.

    Operators with a subgraph attribute (SequenceMap) return None: the subgraph of a call cannot be copied into a body.

    Raises:
        Unsupported: if the function body is not valid for the types of the inputs.
    """
    version = schema_versions.since(call.op, OPSET)
    if version is None:
        return None
    schema = schema_of(call.op)
    if not (schema.has_function or schema.has_context_dependent_function):
        return None
    if any(isinstance(v, Body) for v in call.attrs.values()):
        return None
    try:
        return _body(call, schema, version)
    except inference.Contradiction as e:
        floats = [item.key.dtype for item in call.inputs if item is not None and item.key.dtype in _FLOATS]
        if len(set(floats)) < 2:
            raise Unsupported(f"the function body of the ONNX standard is not valid for these types: {e}") from e
    # Some bodies, such as that of Attention, expect one type where the operator allows several
    return _body(call, schema, version, max(floats, key=_FLOATS.index))


_FLOATS = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _body(call: Call, schema: Any, version: int, computed_in: ir.DataType | None = None) -> Body | None:
    """The body. `computed_in` is the type to which all floating-point inputs are cast, and from which results are cast.

    Raises:
        Contradiction: if the body is not valid for the types of the inputs.
    """
    names = [None if item is None else f"input_{i}" for i, item in enumerate(call.inputs)]
    input_copies = [_copy(item.key, name) if name else None for item, name in zip(call.inputs, names, strict=True)]
    arguments, casts = list(input_copies), []
    for i, copy in enumerate(input_copies):
        dtype = computed_in if copy is not None and copy.dtype in _FLOATS else None
        if call.op == "Attention" and i == 3 and copy is not None and copy.dtype not in (*_FLOATS, ir.DataType.BOOL):
            dtype = computed_in or input_copies[0].dtype  # type: ignore[union-attr]  # integers have no -inf to mask with
        if copy is not None and dtype is not None and copy.dtype != dtype:
            casts.append(_cast(copy, dtype, f"cast_{i}"))
            arguments[i] = casts[-1].outputs[0]
    node = ir.Node("", call.op, arguments, _attributes(schema, call.attrs), num_outputs=len(call.outputs))
    for i, output in enumerate(node.outputs):
        output.name = f"output_{i}"
    taken = {n for n in names if n} | {c.outputs[0].name or "" for c in casts}
    try:
        written, found, opset = decompose_for_opset.decomposition(node, version, taken)
    except Unsupported:
        return None
    nodes, results = [*casts, *written], list(found)
    for i, (result, key) in enumerate(zip(results, call.outputs, strict=False)):
        if computed_in is not None and result is not None and key is not None and key.dtype in _FLOATS:  # type: ignore[attr-defined]
            nodes.append(_cast(result, key.dtype, f"result_{i}"))  # type: ignore[attr-defined]
            results[i] = nodes[-1].outputs[0]
    used = [r for r, key in zip(results, call.outputs, strict=False) if key is not None]
    if any(r is None for r in used):
        return None
    graph_inputs = [c for c in input_copies if c is not None and c.const_value is None]
    constant_inputs = [c for c in input_copies if c is not None and c.const_value is not None]
    for value in arguments:
        for user, index in list(value.uses()) if value is not None else []:
            if user is node:
                user.replace_input_with(index, None)
    graph = ir.Graph(
        graph_inputs,
        list(dict.fromkeys(used)),
        nodes=nodes,
        initializers=constant_inputs,
        name=call.op,
        opset_imports={"": opset},
    )
    model = opset_conversion.to_hub(ir.Model(graph, ir_version=10))
    passes.infer(model)
    body_inputs = iter(model.graph.inputs)
    inputs = tuple(None if c is None else next(body_inputs) if c.const_value is None else None for c in input_copies)
    body_outputs = dict(zip(dict.fromkeys(used), model.graph.outputs, strict=True))
    outputs = tuple(None if key is None else Ref(body_outputs[r]) for r, key in zip(results, call.outputs, strict=False))
    return Body(inputs, list(graph_reader.calls_of(model.graph)), outputs)


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", dtype)])
    node.outputs[0].name = name
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(dtype), value.shape
    return node


def _copy(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape, const_value=value.const_value)


def _attributes(schema: Any, attrs: Any) -> list[ir.Attr]:
    converted = []
    for name, value in attrs.items():
        kind = ir.AttributeType(int(schema.attributes[name].type))
        converted.append(ir.Attr(name, kind, inference.attribute_value(kind, name, value)))
    return converted
