"""Normalizes a parsed ONNX model for the hub: legacy forms are updated, what the hub cannot represent is refused."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import onnx

from onnxbridge.errors import ConversionError, Problem, SourceLocation, UnsafeFileError
from onnxbridge.hub.io.mapped_tensors import MAX_RANK, to_dense
from onnxbridge.hub.io.safe_files import quoted
from onnxbridge.hub.io.schema_checks import check_schemas

_ATTRIBUTE_TYPES = {
    "f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH", "sparse_tensor": "SPARSE_TENSOR", "tp": "TYPE_PROTO",
    "floats": "FLOATS", "ints": "INTS", "strings": "STRINGS", "tensors": "TENSORS", "graphs": "GRAPHS",
    "sparse_tensors": "SPARSE_TENSORS", "type_protos": "TYPE_PROTOS",
}  # fmt: skip


_MESSAGES = {
    onnx.AttributeProto.TENSOR: "t", onnx.AttributeProto.GRAPH: "g", onnx.AttributeProto.TYPE_PROTO: "tp",
    onnx.AttributeProto.SPARSE_TENSOR: "sparse_tensor",
}  # fmt: skip
_BODIES = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",), "SequenceMap": ("body",)}


def sanitize(model: onnx.ModelProto, path: str, keep_maps: bool = False) -> None:
    """Replace legacy and sparse forms in place, and refuse malformed models.

    The hub has no map type. With `keep_maps`, values that are maps or sequences of maps are kept without a type.
    """
    if not model.HasField("graph"):
        raise UnsafeFileError(f"{path}: has no graph; export the model again.")
    if model.training_info:
        warnings.warn(f"{path}: training information is dropped; the inference graph is kept.", stacklevel=3)
    _check_text(path, *(entry.domain for owner in (model, *model.functions) for entry in owner.opset_import))
    _normalize_opset_imports(model, path)
    maps: list[Problem] = []
    own = {(function.domain, function.name) for function in model.functions}
    for owner, graph in [(model, model.graph), *((function, function) for function in model.functions)]:
        opsets = {entry.domain: entry.version for entry in (owner.opset_import or model.opset_import)}
        _normalize_graph(graph, path, maps)
        check_schemas(graph, path, opsets, own)
    if maps and not keep_maps:
        raise ConversionError(f"{path}: ONNX to the hub", maps)


def _normalize_opset_imports(model: onnx.ModelProto, path: str) -> None:
    if not model.opset_import and model.ir_version < 3:
        model.opset_import.add(domain="", version=1)
    for owner in [model, *model.functions]:
        found: dict[str, int] = {}
        for entry in owner.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            entry.domain = domain
            if found.setdefault(domain, entry.version) != entry.version:
                raise UnsafeFileError(f"{path}: imports two versions of the domain {domain or 'ai.onnx'!r}; export it again.")
    if "" not in {e.domain for e in model.opset_import} and any(n.domain in ("", "ai.onnx") for n in model.graph.node):
        raise UnsafeFileError(f"{path}: imports no version of ai.onnx; export the model again.")


def _check_text(path: str, *texts: str | bytes) -> None:
    """Refuse strings that are not UTF-8, which protobuf returns as bytes."""
    for text in texts:
        if isinstance(text, bytes):
            raise UnsafeFileError(f"{path}: the name {quoted(text)} is not valid UTF-8; export the model again.")


def _normalize_graph(graph: onnx.GraphProto | onnx.FunctionProto, path: str, maps: list[Problem]) -> None:
    _check_text(path, graph.name, *(value.name for value in graph.value_info))
    if isinstance(graph, onnx.GraphProto):
        _check_text(path, *(value.name for value in (*graph.input, *graph.output)))
        for tensor in graph.initializer:
            _check_tensor_text(tensor, path)
        for sparse in graph.sparse_initializer:
            graph.initializer.add().CopyFrom(to_dense(path, sparse))
        del graph.sparse_initializer[:]
        for what, names in (("inputs", [v.name for v in graph.input]), ("initializers", [t.name for t in graph.initializer])):
            count = Counter(names)
            if "" in count or len(count) < len(names):
                raise UnsafeFileError(f"{path}: has {what} without a name or with duplicate names; export the model again.")
        for value in (*graph.input, *graph.output):
            _normalize_type(value.type, path, value.name, maps)
    for value in graph.value_info:
        _normalize_type(value.type, path, value.name, maps)
    for node in graph.node:
        _check_text(path, node.op_type, node.domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute))
        if node.domain == "ai.onnx":
            node.domain = ""
        for attribute in node.attribute:
            _normalize_attribute(attribute, path)
            for inner in _subgraphs(attribute):
                _normalize_graph(inner, path, maps)
        _check_bodies(node, path)


def _check_tensor_text(tensor: onnx.TensorProto, path: str) -> None:
    _check_text(path, tensor.name, *(text for entry in tensor.external_data for text in (entry.key, entry.value)))


def _check_bodies(node: onnx.NodeProto, path: str) -> None:
    """Refuse control flow whose bodies are missing, or have not the inputs and outputs that the operator requires."""
    if node.domain or node.op_type not in _BODIES:
        return
    found = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
    bodies = [found.get(name) for name in _BODIES[node.op_type]]
    outputs, inputs = len(node.output), len(node.input)
    for body in bodies:
        if body is None:
            wrong = f"has no {' and '.join(_BODIES[node.op_type])}"
        elif node.op_type == "If":
            wrong = "has branches with too few outputs" if len(body.output) < outputs else ""
        elif node.op_type == "Loop":
            states = max(0, inputs - 2)
            fits = len(body.input) == states + 2 and len(body.output) >= 1 + states and len(body.output) - 1 >= outputs
            wrong = "" if fits else "does not fit its body"
        elif node.op_type == "Scan":  # the first version had one input more
            wrong = "" if inputs - len(body.input) in (0, 1) and len(body.output) >= outputs else "does not fit its body"
        else:
            wrong = "" if len(body.input) == inputs and len(body.output) >= outputs else "does not fit its body"
        if wrong:
            raise UnsafeFileError(f"{path}: the {node.op_type} {quoted(node.name)} {wrong}; export the model again.")


def _subgraphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _normalize_attribute(attribute: onnx.AttributeProto, path: str) -> None:
    """Set the type of an attribute of IR version 1, and make sparse tensors dense."""
    if attribute.HasField("t"):
        _check_tensor_text(attribute.t, path)
    if attribute.type == onnx.AttributeProto.UNDEFINED and not attribute.ref_attr_name:
        fields = [d.name for d, _ in attribute.ListFields() if d.name in _ATTRIBUTE_TYPES]
        if len(fields) != 1:
            raise UnsafeFileError(f"{path}: the attribute {quoted(attribute.name)} has no single value; export the model again.")
        attribute.type = onnx.AttributeProto.AttributeType.Value(_ATTRIBUTE_TYPES[fields[0]])
    field = _MESSAGES.get(attribute.type)
    if field is not None and not attribute.HasField(field) and not attribute.ref_attr_name:
        raise UnsafeFileError(f"{path}: the attribute {quoted(attribute.name)} has no value; export the model again.")
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
        attribute.t.CopyFrom(to_dense(path, attribute.sparse_tensor))
        attribute.ClearField("sparse_tensor")
        attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
    elif attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
        raise UnsafeFileError(f"{path}: the attribute {quoted(attribute.name)} is a sparse tensor, which is not supported.")


def _normalize_type(kind: onnx.TypeProto, path: str, name: str, maps: list[Problem]) -> None:
    """Clear undefined element types and negative sizes, and collect map types, which the hub does not have."""
    which = kind.WhichOneof("value")
    if which == "map_type":
        hint = "export without ZipMap (skl2onnx: options={'zipmap': False}); the probabilities are then a plain tensor"
        maps.append(Problem("ZipMap", "a value is a map", hint, (SourceLocation(node=name),)))
        kind.Clear()
    elif which in ("sequence_type", "optional_type"):
        _normalize_type(getattr(kind, which).elem_type, path, name, maps)
        if getattr(kind, which).elem_type.WhichOneof("value") is None:
            kind.Clear()
    elif which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type == onnx.TensorProto.UNDEFINED:
            tensor.ClearField("elem_type")
        if len(tensor.shape.dim) > MAX_RANK:
            rank = len(tensor.shape.dim)
            raise UnsafeFileError(f"{path}: {quoted(name)} has rank {rank}, and the limit is {MAX_RANK}; export the model again.")
        for dim in tensor.shape.dim:
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value < 0:
                dim.ClearField("dim_value")
