"""ONNX files in and out: weights stay in the file, mapped, until a number of them is needed; nothing else is ever opened.

`read` and `write` work on files, `from_proto` and `to_proto` on what users hold in memory. What a file may do to its reader is
in `paths` (which files), `tensors` (which bytes) and `prepare` (which contents).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import onnx
import onnx_ir as ir
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io import protobuf_weights
from onnxbridge.hub.io.detect_format import is_text, recognise, wrong_kind
from onnxbridge.hub.io.mapped_tensors import Standin, Store, is_large, own_bytes, tensors
from onnxbridge.hub.io.safe_files import Buffer, mapped, named, open_file, quoted, refuse_overwriting, replacing, write_pieces
from onnxbridge.hub.io.sanitize import prepare
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.opset.ir_version import lowest_ir_version

__all__ = ["detached", "from_proto", "read", "recognise", "to_proto", "write", "wrong_kind"]

LARGEST_FILE = (1 << 31) - 1  # protobuf's own limit
BESIDE = "onnxbridge.beside"  # in a model's meta: the locations of the files that hold weights of it
_LARGEST_TEXT = 256 << 20
_PAGE = 4096
_TEXT_ERRORS = (UnicodeDecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError, RecursionError)


def read(path: str | os.PathLike[str], *, keep_maps: bool = False) -> ir.Model:
    """The model of an ONNX file, with its weights mapped from the files they lie in.

    Raises `UnsafeFileError` for a file that is corrupt or reaches outside its folder, `UsageError` for one of another kind, and
    `ConversionError` for one with maps, unless these are to be kept, as values without a type.
    """
    shown = named(path)
    kind = recognise(path)
    if kind != "onnx":
        raise wrong_kind(path, kind)
    content = mapped(open_file(path))
    folder = os.path.dirname(shown)
    form = is_text(content[:_PAGE])
    if form:
        return _model(_parse_text(content, form, shown), Store(shown, folder), keep_maps)
    ticket = secrets.token_bytes(16)
    with memoryview(content) as data:
        try:
            message, places = protobuf_weights.cut(data, ticket)
        except protobuf_weights.Malformed as problem:
            raise protobuf_weights.corrupt(shown, problem) from None
    if len(message) > LARGEST_FILE:
        raise protobuf_weights.corrupt(shown, "its graph alone is larger than 2 GB")
    try:
        proto = onnx.ModelProto.FromString(message)
    except DecodeError:
        raise protobuf_weights.corrupt(shown, "a message in it is malformed or nested too deep") from None
    return _model(proto, Store(shown, folder, ticket, [(content, offset, size) for offset, size in places]), keep_maps)


def from_proto(proto: onnx.ModelProto, folder: str | os.PathLike[str] | None = None, *, keep_maps: bool = False) -> ir.Model:
    """The model of a message in memory, which is left as it was; `folder` is where its external data lies, if it has any.

    Maps are as in `read`.
    """
    store = Store("the model", None if folder is None else named(folder), secrets.token_bytes(16))
    whole = onnx.ModelProto()
    _copy(proto, whole, {"graph"})
    if proto.HasField("graph"):
        whole.graph.SetInParent()
        _copy(proto.graph, whole.graph, {"initializer"})
    for tensor in proto.graph.initializer:
        kept = whole.graph.initializer.add()
        _copy(tensor, kept, {"raw_data"})
        if tensor.HasField("raw_data"):
            # read once: a message gives its bytes as a new copy at each access
            raw = tensor.raw_data
            kept.raw_data = raw if len(raw) < protobuf_weights.LARGE else store.keep(raw)
    return _model(whole, store, keep_maps)


def _copy(source: Message, target: Message, without: set[str]) -> None:
    """Copy a message but for some of its fields."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:  # a message or a repeated field
            getattr(target, field.name).MergeFrom(value)


def _parse_text(content: Buffer, form: str, shown: str) -> onnx.ModelProto:
    if len(content) > _LARGEST_TEXT:
        raise LimitError(f"{shown}: a model in text form may have {_LARGEST_TEXT} bytes; save it in the binary form.")
    try:
        text = bytes(content).decode("utf-8")
        if form == "text":
            return onnx.parser.parse_model(text)
        proto = onnx.ModelProto()
        (json_format if form == "json" else text_format).Parse(text, proto)
        return proto
    except _TEXT_ERRORS as problem:
        raise protobuf_weights.corrupt(shown, " ".join(str(problem).split())[:200]) from None


def _model(proto: onnx.ModelProto, store: Store, keep_maps: bool) -> ir.Model:
    """The hub's model of a message, after every check."""
    prepare(proto, store.shown, keep_maps)
    for graph in (proto.graph, *proto.functions):
        for tensor in tensors(graph):
            store.check(tensor)
    try:
        model = ir.from_proto(proto)
    except (ir.serde.SerdeError, ValueError, TypeError, NotImplementedError, AttributeError, RecursionError) as problem:
        raise protobuf_weights.corrupt(store.shown, _root(problem)) from None
    for g in every_graph(model):
        _whole(g, store.shown)
    for owner in (model.graph, *(function.graph for function in model.functions.values())):
        _order(owner, store.shown)
    _map_tensors(model, proto, store)
    model.meta[BESIDE] = tuple(store.opened)
    return model


def _root(problem: BaseException) -> str:
    """The first cause, in one line, and printable whatever the file holds."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return quoted(" ".join(str(problem).split()) or type(problem).__name__)


def _whole(graph: ir.Graph, shown: str) -> None:
    """Refuse a graph that reads a value which nothing writes."""

    def check(value: ir.Value | None, reader: str) -> None:
        if value is not None and value.producer() is None and not value.is_graph_input() and not value.is_initializer():
            unwritten = quoted(value.name or "")
            raise UnsafeFileError(f"{shown}: {reader} reads {unwritten}, which nothing writes; export the model again.")

    for node in graph:
        for value in node.inputs:
            check(value, f"the node {quoted(node.name or node.op_type)}")
    for value in graph.outputs:
        check(value, "an output")


def _order(graph: ir.Graph, shown: str) -> None:
    """Put nodes behind those whose results they read, where a file has them otherwise: ONNX Runtime takes such files."""
    done: set[ir.Node] = set()
    if all(_follows(node, done) for node in graph):
        return
    try:
        graph.sort()
    except ValueError as problem:
        raise protobuf_weights.corrupt(shown, _root(problem)) from None


def _follows(node: ir.Node, done: set[ir.Node]) -> bool:
    """Whether a node, and those inside it, read results of nodes only that are done; from here on it is too."""
    for attribute in node.attributes.values():
        parts = attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()
        for part in (attribute.as_graph(),) if attribute.type == ir.AttributeType.GRAPH else parts:
            if not all(_follows(inner, done) for inner in part):
                return False
    done.add(node)
    return all((made := value.producer()) is None or made in done for value in node.inputs if value is not None)


def _map_tensors(model: ir.Model, proto: onnx.ModelProto, store: Store) -> None:
    """Put tensors over the mapped files in the place of tickets and of onnx_ir's own, which open files by name."""
    for graph in every_graph(model):
        for value in graph.initializers.values():
            found = _mapped(value.const_value, store)
            if found is not None:
                value.const_value = found
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.TENSOR:
                    found = _mapped(attribute.as_tensor(), store)
                    if found is not None:
                        node.attributes[name] = ir.AttrTensor(name, found)
                elif attribute.type == ir.AttributeType.TENSORS:
                    all_found = [_mapped(t, store) or t for t in attribute.as_tensors()]
                    node.attributes[name] = ir.AttrTensors(name, all_found)


def _mapped(tensor: ir.TensorProtocol | None, store: Store) -> ir.TensorProtocol | None:
    if isinstance(tensor, ir.serde.TensorProtoTensor):
        return store.tensor(tensor.raw)
    if isinstance(tensor, ir.ExternalTensor):
        return store.tensor(ir.serde.serialize_tensor(tensor))
    return None


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as a message in memory, with all weights inside; beyond 2 GB only `write` can hold it."""
    total = sum(tensor.nbytes for tensor in _large(model))
    if total > LARGEST_FILE:
        raise LimitError(f"the model has {total} bytes of weights and a message holds 2 GB; write it to a file instead.")
    with _as_written(model, lambda number, tensor: tensor):
        return _message(model)


def write(
    model: ir.Model, path: str | os.PathLike[str], *, force: bool = False, external: bool | Literal["auto"] = "auto"
) -> list[str]:
    """Write one file, or with `external` a second one beside it for the weights; "auto" does so from 2 GB on.

    Returns the paths written. Each is written under a temporary name and renamed; nothing is replaced without `force`.
    """
    target = named(path)
    refuse_overwriting(target, force)
    large = _large(model)
    if external is not True:
        ticket = secrets.token_bytes(16)
        with _as_written(model, lambda number, tensor: Standin(tensor, ticket + number.to_bytes(4, "little"))):
            message = _serialised(model, target)
        size, pieces = protobuf_weights.paste(message, ticket, {i: (tensor.nbytes, tensor) for i, tensor in enumerate(large)})
        if size <= LARGEST_FILE:
            with replacing(target) as temporary:
                write_pieces(temporary, map(_bytes, pieces))
            return [target]
        if external is False:
            raise LimitError(f"{target}: would have {size} bytes, and an ONNX file holds 2 GB; allow a second file.")
    beside = f"{target}.data"
    refuse_overwriting(beside, force)
    offsets, layout = _layout(large)
    name = os.path.basename(beside)
    with _as_written(model, lambda number, tensor: _elsewhere(tensor, name, offsets[number])):
        message = _serialised(model, target)
    with replacing(target) as temporary, replacing(beside) as data:
        write_pieces(temporary, [message])
        write_pieces(data, map(_bytes, layout))
    return [target, beside]


def detached(model: ir.Model) -> tuple[bytes, dict[str, ir.TensorProtocol]]:
    """The model's message without its large weights, and these by name: for whoever takes weights from memory, of any size.

    In the message such a weight is external data of a file that there is not. Weights of texts and of types narrower than a
    byte, and those inside subgraphs, stay in the message.
    """
    taken = {
        str(v.name): v.const_value
        for v in model.graph.initializers.values()
        if v.const_value is not None and is_large(v.const_value) and v.const_value.dtype.bitwidth >= 8
    }
    inside = {id(tensor) for slot, tensor in _slots(model) if not (isinstance(slot, ir.Value) and slot.name in taken)}
    taken = {name: tensor for name, tensor in taken.items() if id(tensor) not in inside}
    apart = {id(tensor) for tensor in taken.values()}
    with _as_written(model, lambda _, tensor: _elsewhere(tensor, "in-memory", 0) if id(tensor) in apart else tensor):
        return _serialised(model, "the model"), taken


def _message(model: ir.Model) -> onnx.ModelProto:
    """The model as a message that tells the types of its weights once, with their numbers.

    ONNX Runtime's quantizer turns weights over, and finds what else is told of them to contradict it.
    """
    message = ir.to_proto(model)
    held = {tensor.name for tensor in message.graph.initializer}
    told = [value for value in message.graph.value_info if value.name not in held or value.metadata_props]
    if len(told) < len(message.graph.value_info):
        message.graph.ClearField("value_info")
        message.graph.value_info.extend(told)
    return message


def _serialised(model: ir.Model, target: str) -> bytes:
    message = _message(model)
    if message.ByteSize() > LARGEST_FILE:
        raise LimitError(f"{target}: the graph alone would have {message.ByteSize()} bytes, and an ONNX file holds 2 GB.")
    return bytes(message.SerializeToString(deterministic=True))


def _bytes(piece: Buffer | ir.TensorProtocol) -> Buffer:
    return own_bytes(piece) if isinstance(piece, ir.TensorProtocol) else piece


def _slots(model: ir.Model) -> Iterator[tuple[ir.Value | tuple[ir.Node, str], ir.TensorProtocol]]:
    """Where the model holds a large tensor: an initializer's value, or a node and the name of its attribute."""
    for graph in every_graph(model):
        for value in graph.initializers.values():
            if value.const_value is not None and is_large(value.const_value):
                yield value, value.const_value
        for node in graph:
            for name, attribute in node.attributes.items():
                if attribute.type == ir.AttributeType.TENSOR and not attribute.is_ref() and is_large(attribute.as_tensor()):
                    yield (node, name), attribute.as_tensor()


def _large(model: ir.Model) -> list[ir.TensorProtocol]:
    return [tensor for _, tensor in _slots(model)]


@contextmanager
def _as_written(model: ir.Model, stand_in: Callable[[int, ir.TensorProtocol], ir.TensorProtocol]) -> Iterator[None]:
    """The model with each large tensor exchanged and the lowest IR version, as it was again afterwards."""
    slots = list(_slots(model))
    version, model.ir_version = model.ir_version, lowest_ir_version(model)
    try:
        for number, (slot, tensor) in enumerate(slots):
            _put(slot, stand_in(number, tensor))
        yield
    finally:
        for slot, tensor in slots:
            _put(slot, tensor)
        model.ir_version = version


def _put(slot: ir.Value | tuple[ir.Node, str], tensor: ir.TensorProtocol) -> None:
    if isinstance(slot, ir.Value):
        slot.const_value = tensor
    else:
        node, name = slot
        node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=node.attributes[name].doc_string)


def _layout(large: list[ir.TensorProtocol]) -> tuple[list[int], list[Buffer | ir.TensorProtocol]]:
    """Each tensor's offset, on whole pages so that it can be mapped, and the file in pieces; shared tensors lie once."""
    offsets: list[int] = []
    pieces: list[Buffer | ir.TensorProtocol] = []
    laid: dict[int, int] = {}
    end = 0
    for tensor in large:
        if id(tensor) not in laid:
            gap = -end % _PAGE
            laid[id(tensor)] = end + gap
            pieces += [bytes(gap), tensor]
            end += gap + tensor.nbytes
        offsets.append(laid[id(tensor)])
    return offsets, pieces


def _elsewhere(tensor: ir.TensorProtocol, file: str, offset: int) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        file, offset, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or "",
        doc_string=tensor.doc_string, metadata_props=dict(tensor.metadata_props),
    )  # fmt: skip
