"""A parsed ONNX file made fit for the hub: old forms written in today's, what cannot be held refused, nothing lost in silence."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator

import onnx

from onnxbridge.errors import ConversionError, Problem, Source, UnsafeFileError
from onnxbridge.hub.io.mapped_tensors import MOST_RANK, dense
from onnxbridge.hub.io.safe_files import quoted

_VALUES = {
    "f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH", "sparse_tensor": "SPARSE_TENSOR", "tp": "TYPE_PROTO",
    "floats": "FLOATS", "ints": "INTS", "strings": "STRINGS", "tensors": "TENSORS", "graphs": "GRAPHS",
    "sparse_tensors": "SPARSE_TENSORS", "type_protos": "TYPE_PROTOS",
}  # fmt: skip


def prepare(model: onnx.ModelProto, shown: str, keep_maps: bool = False) -> None:
    """Write old and sparse forms in the plain ones, in place, and refuse what is malformed.

    The hub has no maps. With `keep_maps` values that are maps, or sequences of them, lose their type and stay.
    """
    if not model.HasField("graph"):
        raise UnsafeFileError(f"{shown}: holds no graph; export the model again.")
    if model.training_info:
        warnings.warn(f"{shown}: its training information is left out; the graph for inference is kept.", stacklevel=3)
    _opsets(model, shown)
    maps: list[Problem] = []
    for graph in [model.graph, *model.functions]:
        _graph(graph, shown, maps)
    if maps and not keep_maps:
        raise ConversionError(f"{shown}: ONNX to the hub", maps)


def _opsets(model: onnx.ModelProto, shown: str) -> None:
    if not model.opset_import and model.ir_version < 3:
        model.opset_import.add(domain="", version=1)
    for owner in [model, *model.functions]:
        found: dict[str, int] = {}
        for entry in owner.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            entry.domain = domain
            if found.setdefault(domain, entry.version) != entry.version:
                raise UnsafeFileError(f"{shown}: imports two versions of the operators {domain or 'ai.onnx'!r}; export it again.")
    if "" not in {e.domain for e in model.opset_import} and any(n.domain in ("", "ai.onnx") for n in model.graph.node):
        raise UnsafeFileError(f"{shown}: does not say which opset its operators are of; export the model again.")


def _graph(graph: onnx.GraphProto | onnx.FunctionProto, shown: str, maps: list[Problem]) -> None:
    if isinstance(graph, onnx.GraphProto):
        for sparse in graph.sparse_initializer:
            graph.initializer.add().CopyFrom(dense(shown, sparse))
        del graph.sparse_initializer[:]
        for what, names in (("inputs", [v.name for v in graph.input]), ("initial tensors", [t.name for t in graph.initializer])):
            count = Counter(names)
            if "" in count or len(count) < len(names):
                raise UnsafeFileError(f"{shown}: has {what} without a name, or two by one name; export the model again.")
        for value in (*graph.input, *graph.output):
            _type(value.type, shown, value.name, maps)
    for value in graph.value_info:
        _type(value.type, shown, value.name, maps)
    for node in graph.node:
        if node.domain == "ai.onnx":
            node.domain = ""
        for attribute in node.attribute:
            _attribute(attribute, shown)
            for inner in _inner(attribute):
                _graph(inner, shown, maps)


def _inner(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def _attribute(attribute: onnx.AttributeProto, shown: str) -> None:
    """Give an attribute of IR version 1 its type, and write sparse tensors out."""
    if attribute.type == onnx.AttributeProto.UNDEFINED and not attribute.ref_attr_name:
        held = [d.name for d, _ in attribute.ListFields() if d.name in _VALUES]
        if len(held) != 1:
            raise UnsafeFileError(f"{shown}: the attribute {quoted(attribute.name)} has no single value; export the model again.")
        attribute.type = onnx.AttributeProto.AttributeType.Value(_VALUES[held[0]])
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR and attribute.name == "sparse_value":
        attribute.t.CopyFrom(dense(shown, attribute.sparse_tensor))
        attribute.ClearField("sparse_tensor")
        attribute.name, attribute.type = "value", onnx.AttributeProto.TENSOR
    elif attribute.type in (onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS):
        raise UnsafeFileError(f"{shown}: the attribute {quoted(attribute.name)} is a sparse tensor, which nothing here reads.")


def _type(kind: onnx.TypeProto, shown: str, name: str, maps: list[Problem]) -> None:
    """Drop what a type only pretends to know (no element type, negative sizes), and note the maps, which the hub has not."""
    which = kind.WhichOneof("value")
    if which == "map_type":
        hint = "export without ZipMap (skl2onnx: options={'zipmap': False}); the probabilities are then a plain tensor"
        maps.append(Problem("ZipMap", "a value is a map", hint, (Source(node=name),)))
        kind.Clear()
    elif which in ("sequence_type", "optional_type"):
        _type(getattr(kind, which).elem_type, shown, name, maps)
        if getattr(kind, which).elem_type.WhichOneof("value") is None:
            kind.Clear()
    elif which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type == onnx.TensorProto.UNDEFINED:
            tensor.ClearField("elem_type")
        if len(tensor.shape.dim) > MOST_RANK:
            rank = len(tensor.shape.dim)
            raise UnsafeFileError(f"{shown}: {quoted(name)} has rank {rank}, of at most {MOST_RANK}; export the model again.")
        for dim in tensor.shape.dim:
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value < 0:
                dim.ClearField("dim_value")
