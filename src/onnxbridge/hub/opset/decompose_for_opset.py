"""Rewrites an operator that a version lacks: by its decomposition, by the standard's function body, or between Casts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from onnxbridge.errors import ConversionError, Unsupported
from onnxbridge.hub.builder.builder import Builder
from onnxbridge.hub.builder.scratch_target import ScratchTarget
from onnxbridge.hub.ir import graph_reader
from onnxbridge.hub.ir.opset_version import OPSET
from onnxbridge.hub.ir.values import dtype_name
from onnxbridge.hub.opset import schema_versions
from onnxbridge.hub.opset.known_values import known

# These only move, select or compare elements, so a wider dtype gives the same result.
_MOVING = frozenset({
    "Concat", "Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Gather", "GatherElements", "GatherND", "Scatter",
    "ScatterElements", "ScatterND", "Tile", "Expand", "Pad", "Flatten", "Identity", "Where", "Max", "Min", "Equal", "Greater",
    "Less", "GreaterOrEqual", "LessOrEqual", "Relu", "Clip", "MaxPool", "TopK", "ArgMax", "ArgMin", "ReduceMax", "ReduceMin",
    "DepthToSpace", "SpaceToDepth", "Compress", "ReverseSequence", "OneHot", "Abs", "Neg", "Sign", "NonZero", "Trilu", "Unique",
    "Upsample",
})  # fmt: skip
# Sums, differences and products wrap around, and casting back from a wider integer wraps in the same way; quotients fit.
_WRAPPING = frozenset(["Add", "Sub", "Mul", "ReduceSum", "CumSum", "MatMul", "Sum", "Div", "Mod"])
# Half precision computed in single precision and rounded once at the end is at least as accurate; not for operators that
# depend on the dtype itself.
_DTYPE_SPECIFIC = frozenset({
    "Bernoulli", "BitCast", "Cast", "CastLike", "Constant", "EyeLike", "Multinomial", "RandomNormalLike", "RandomUniformLike",
    "Range", "SequenceInsert", "SequenceConstruct", "SequenceAt", "SequenceErase", "SplitToSequence", "Identity",
})  # fmt: skip
_WIDER = {
    "BOOL": ["UINT8", "INT32", "INT64", "FLOAT"], "UINT8": ["INT32", "INT64", "FLOAT"], "INT8": ["INT32", "INT64", "FLOAT"],
    "UINT16": ["INT32", "INT64", "FLOAT"], "INT16": ["INT32", "INT64", "FLOAT"], "INT32": ["INT64", "DOUBLE"],
    "UINT32": ["INT64", "DOUBLE"], "FLOAT16": ["FLOAT", "DOUBLE"], "BFLOAT16": ["FLOAT", "DOUBLE"],
}  # fmt: skip

_NEAREST = {
    "INT64": ["DOUBLE", "FLOAT"], "UINT64": ["DOUBLE", "FLOAT"], "INT32": ["FLOAT"], "UINT32": ["FLOAT"],
    "DOUBLE": ["FLOAT"],
}  # fmt: skip


def cast_around(op: Builder, node: ir.Node, version: int, lossy: bool = False) -> Any:
    """The node between Casts to a dtype that its operator supports at an older version, if that is exact or more accurate.

    Built at the builder's opset; None if there is no such dtype. With `lossy` the dtype may round.
    """
    schema = schema_versions.history(node.op_type)[version]
    if any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()) or not node.inputs:
        return None
    first, (output, *_) = node.inputs[0], node.outputs
    if node.op_type == "Identity" and first is not None and None not in (first.dtype, output.dtype):
        return (op.Cast(first, to=output.dtype),) if first.dtype != output.dtype else None
    formals = [schema_versions.formal(schema.inputs, i) for i in range(len(node.inputs))]
    if None in formals:  # an input that was an attribute
        return None
    wrong = [(v, f) for v, f in zip(node.inputs, formals, strict=True) if v is not None and not schema_versions.supports(f, v)]
    wrong = wrong or _mixed(node, formals)
    if not wrong or wrong[0][0].dtype is None or wrong[0][1].type_str.startswith(("tensor(", "seq(", "optional(")):
        return None
    dtype, variable, supported = wrong[0][0].dtype, wrong[0][1].type_str, wrong[0][1].types
    selected = [f.type_str == variable for f in formals]
    dtypes = {v.dtype for v, m in zip(node.inputs, selected, strict=True) if v is not None and m}
    if len(dtypes) > 1:
        wide = _widest(dtypes, supported)
        if wide is None:
            return None
        return _cast(op, node, schema, selected, variable, wide)
    wide = _wider(node, dtype, supported)
    if wide is None:
        wide = _nearest(node, dtype, supported) if lossy else None
        if wide is None:
            return None
        op.loses(f"{dtype_name(dtype)} is computed as {dtype_name(wide)}")
    return _cast(op, node, schema, selected, variable, wide)


def _cast(
    op: Builder, node: ir.Node, schema: onnx.defs.OpSchema, selected: Sequence[bool], variable: str, wide: ir.DataType
) -> tuple[Any, ...] | None:
    """The node with those inputs and outputs cast that have the type variable."""
    same = [schema.outputs[min(i, len(schema.outputs) - 1)].type_str == variable for i in range(len(node.outputs))]
    if any(s and v.dtype is None for v, s in zip(node.outputs, same, strict=True)):
        return None
    inputs = [
        op.Cast(v, to=wide) if v is not None and m and v.dtype != wide else v for v, m in zip(node.inputs, selected, strict=True)
    ]
    attrs = {a.name: graph_reader.plain(a) for a in node.attributes.values() if not a.is_ref()}
    results = op.call(node.op_type, *inputs, outputs=len(node.outputs), **attrs)
    results = results if isinstance(results, tuple) else (results,)
    return tuple(op.Cast(r, to=v.dtype) if s else r for r, v, s in zip(results, node.outputs, same, strict=True))


def _mixed(node: ir.Node, formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> list[Any]:
    """The first input whose dtype differs from that of another one with the same type variable."""
    bound: dict[str, ir.DataType] = {}
    for v, f in zip(node.inputs, formals, strict=True):
        if v is None or v.dtype is None or not f.is_homogeneous:
            continue
        if bound.setdefault(f.type_str, v.dtype) != v.dtype:
            return [(v, f)]
    return []


def _widest(dtypes: Collection[ir.DataType | None], supported: Collection[str]) -> ir.DataType | None:
    """The first supported dtype to which all these dtypes can be cast exactly."""
    for name in ("INT32", "INT64", "FLOAT", "DOUBLE"):
        wide = ir.DataType[name]
        if f"tensor({name.lower()})" in supported and all(d is not None and np.can_cast(_plain(d), wide.numpy()) for d in dtypes):
            return wide
    return None


def _plain(dtype: ir.DataType) -> np.dtype[Any]:
    return np.dtype(np.float32) if dtype == ir.DataType.BFLOAT16 else dtype.numpy()


def _wider(node: ir.Node, dtype: ir.DataType, supported: Collection[str]) -> ir.DataType | None:
    """A supported dtype in which the operator gives the same result, or for half precision a more accurate one."""
    name = node.op_type
    choices = [w for w in _WIDER.get(dtype.name, []) if f"tensor({w.lower()})" in supported]
    if dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        return ir.DataType[choices[0]] if choices and name not in _DTYPE_SPECIFIC else None
    if name in _WRAPPING:
        choices = [w for w in choices if w.startswith("INT") and dtype != ir.DataType.BOOL]
    elif name not in _MOVING:
        return None
    if name in ("ReduceMax", "ReduceMin"):  # for an empty axis they return the dtype's own limit
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        filled = shape is not None and all(isinstance(d, int) and d > 0 for d in shape)
        choices = [w for w in choices if filled or w == "UINT8"]
    return ir.DataType[choices[0]] if choices else None


def _nearest(node: ir.Node, dtype: ir.DataType, supported: Collection[str]) -> ir.DataType | None:
    """A supported dtype that rounds the values."""
    choices = [w for w in _NEAREST.get(dtype.name, ()) if f"tensor({w.lower()})" in supported]
    return ir.DataType[choices[0]] if choices and node.op_type not in _DTYPE_SPECIFIC else None


def has_decomposition_of_version(op_type: str, version: int) -> bool:
    """Whether the hub has a decomposition of this version of an operator."""
    from onnxbridge.hub.decompositions.standard import decompose

    return op_type in decompose and schema_versions.since(op_type, OPSET) == version


def can_decompose(op_type: str) -> bool:
    """Whether the hub or the standard can decompose an operator."""
    from onnxbridge.hub.decompositions.standard import has_decomposition

    return schema_versions.since(op_type, OPSET) is not None and has_decomposition(op_type)


def decomposition(node: ir.Node, version: int, names: set[str]) -> tuple[list[ir.Node], tuple[Any, ...], int]:
    """Nodes that replace a node, their results, and the opset that they are written at.

    Raises:
        Unsupported: if there is neither a decomposition nor a function body.
    """
    from onnxbridge.hub.decompositions.standard import decompose

    refusal = ""
    if has_decomposition_of_version(node.op_type, version):
        try:
            op = Builder(OPSET, names)
            target = ScratchTarget(f"the decomposition of {node.op_type}", op, known, named=False)
            results = target.write(graph_reader.call_of(node), decompose)
            return op.take(), results, OPSET
        except ConversionError as error:
            refusal = error.problems[0].reason
    body, body_version = function_body(node, version)
    cast: list[ir.Node] = []
    if body is not None:
        node, cast = _with_int64_input(node)
    first = schema_versions.first(node.op_type)
    if body is None and refusal:
        raise Unsupported(f"added in opset {first}, and its decomposition does not support this case: {refusal}")
    if body is None:
        raise Unsupported(f"added in opset {first}, and there is no decomposition into older operators")
    nodes, results = _inlined(node, body, version, names)
    return [*cast, *nodes], results, body_version


_INT64_INPUTS = {"CenterCropPad": 1, "AffineGrid": 1}
"""Inputs of any integer dtype that the standard's function body assumes to be int64."""


def _with_int64_input(node: ir.Node) -> tuple[ir.Node, list[ir.Node]]:
    """The node with its inputs cast as the function body requires, and the Casts."""
    index = _INT64_INPUTS.get(node.op_type)
    value = None if index is None else node.inputs[index]
    if index is None or value is None or value.dtype in (None, ir.DataType.INT64):
        return node, []
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(ir.DataType.INT64))])
    cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(ir.DataType.INT64), value.shape
    inputs = [cast.outputs[0] if i == index else v for i, v in enumerate(node.inputs)]
    typed = ir.Node("", node.op_type, inputs, list(node.attributes.values()), num_outputs=len(node.outputs))
    for new, old in zip(typed.outputs, node.outputs, strict=True):
        new.type, new.shape = old.type, old.shape
    return typed, [cast]


def function_body(node: ir.Node, version: int) -> tuple[onnx.FunctionProto | None, int]:
    """The standard's function body of an operator at the oldest opset it has, and that opset."""
    schema = schema_versions.history(node.op_type)[version]
    if schema.has_function:
        at = min(schema.function_opset_versions)
        return onnx.FunctionProto.FromString(schema.get_function_with_opset_version(at)), at
    if not schema.has_context_dependent_function:
        return None, 0
    types = []
    for v in node.inputs:
        proto = onnx.TypeProto()
        if v is not None and v.type is None:
            return None, 0
        if v is not None and v.type is not None:
            ir.serde.serialize_type_into(proto, v.type)
            if v.shape is not None:
                ir.serde.serialize_shape_into(proto, v.shape)
        types.append(proto.SerializeToString())
    at = min(schema.context_dependent_function_opset_versions)
    text = schema.get_context_dependent_function_with_opset_version(at, ir.serde.serialize_node(node).SerializeToString(), types)
    if not text:
        return None, 0
    body = onnx.FunctionProto.FromString(text)
    return body, next((o.version for o in body.opset_import if o.domain in ("", "ai.onnx")), at)


def _inlined(
    node: ir.Node, body: onnx.FunctionProto, version: int, names: set[str]
) -> tuple[list[ir.Node], tuple[ir.Value | None, ...]]:
    """The nodes of a function body, inlined with the inputs of the calling node."""
    written = {name for inner in body.node for name in inner.output} | set(body.input)
    output_names = list(body.output)
    body.output[:] = [name for name in output_names if name in written]
    body.domain, body.name = "onnxbridge", node.op_type
    schema = schema_versions.history(node.op_type)[version]
    # graph attributes are already inlined in the function body and are no longer its parameters
    plain_names = [name for name in body.attribute if schema.attributes[name].type != onnx.defs.OpSchema.AttrType.GRAPH]
    body.attribute[:] = plain_names
    attributes = {a.name: a for a in node.attributes.values() if a.name in body.attribute}
    for name in body.attribute:
        default = schema.attributes[name].default_value
        if name not in attributes and default.type:
            attributes[name] = ir.serde.deserialize_attribute(default)
    inside = [None if v is None else ir.Value(name=f"input_{i}", type=v.type, shape=v.shape) for i, v in enumerate(node.inputs)]
    call = ir.Node("onnxbridge", node.op_type, inside, list(attributes.values()), num_outputs=len(body.output))
    for i, value in enumerate(call.outputs):
        value.name = f"output_{i}"
    graph = ir.Graph([v for v in inside if v is not None], call.outputs, nodes=[call], opset_imports={"onnxbridge": 1})
    model = ir.Model(graph, ir_version=10, functions=[ir.serde.deserialize_function(body)])
    InlinePass()(model)
    stem = next((v.name for v in node.outputs if v.name), node.op_type)
    fresh = Builder(OPSET, names)
    for part in (graph, *graph.subgraphs()):
        for value in [*(part.inputs if part is not graph else ()), *(o for n in part for o in n.outputs)]:
            value.name = fresh.unique(f"{stem}/{value.name}") if value.name else ""
    for old, new in zip(inside, node.inputs, strict=True):
        if old is not None and new is not None:
            old.replace_all_uses_with(new)
    results = dict(zip(body.output, list(graph.outputs), strict=True))
    nodes = list(graph)
    graph.outputs.clear()
    graph.remove(nodes)
    return nodes, tuple(results.get(name) for name in output_names)
