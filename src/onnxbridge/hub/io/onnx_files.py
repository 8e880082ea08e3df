"""Reads and writes ONNX files; weights are memory-mapped and loaded on demand.

`read` and `write` work on files, `from_proto` and `to_proto` on messages in memory. Untrusted input is checked in `safe_files`
(paths), `mapped_tensors` (data of tensors) and `sanitize` (contents of the model).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import onnx
import onnx_ir as ir
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message

from onnxbridge.errors import LimitError, UnsafeFileError
from onnxbridge.hub.io import protobuf_weights
from onnxbridge.hub.io.detect_format import detect_format, onnx_text_format, wrong_format_error
from onnxbridge.hub.io.mapped_tensors import MappedTensor, PlaceholderTensor, WeightStore, all_tensors, is_large, tensor_bytes
from onnxbridge.hub.io.safe_files import (
    Buffer,
    checked_path,
    map_file,
    open_file,
    quoted,
    refuse_overwriting,
    replacing,
    write_pieces,
)
from onnxbridge.hub.io.sanitize import sanitize
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.opset.ir_version import lowest_ir_version

__all__ = [
    "detect_format", "folder_of_weights", "from_proto", "read", "to_proto", "without_weights", "write", "wrong_format_error",
]  # fmt: skip

MAX_FILE_BYTES = (1 << 31) - 1  # protobuf's own limit
EXTERNAL_FILES = "onnxbridge.beside"  # key in a model's meta: the locations of its external data files
_MAX_TEXT_BYTES = 256 << 20
_PAGE = 4096
_MAX_NESTING = 200  # brackets within brackets: a model of 31 nested If nodes has 94, and protobuf refuses more
_BRACKETS = re.compile(r"\"(?:[^\"\\]|\\.)*\"|#[^\n]*|[()\[\]{}<>]", re.DOTALL)
_TEXT_ERRORS = (
    UnicodeDecodeError, DecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError, RuntimeError,
    IndexError, ValueError,
)  # fmt: skip


def read(path: str | os.PathLike[str], *, keep_maps: bool = False) -> ir.Model:
    """Read a model from an ONNX file, with its weights memory-mapped.

    Raises:
        UnsafeFileError: if the file is corrupt or refers to files outside its folder.
        UsageError: if the file has another format.
        ConversionError: if the model has maps, unless `keep_maps`, which keeps them as values without a type.
    """
    path_text = checked_path(path)
    kind = detect_format(path)
    if kind != "onnx":
        raise wrong_format_error(path, kind)
    content = map_file(open_file(path))
    folder = os.path.dirname(path_text)
    form = onnx_text_format(content[:_PAGE])
    if form:
        return _model(_parse_text(content, form, path_text), WeightStore(path_text, folder), keep_maps)
    placeholder = secrets.token_bytes(16)
    with memoryview(content) as data:
        try:
            message, regions = protobuf_weights.strip_weights(data, placeholder)
        except protobuf_weights.Malformed as problem:
            raise protobuf_weights.corrupt(path_text, problem) from None
    if len(message) > MAX_FILE_BYTES:
        raise protobuf_weights.corrupt(path_text, "its graph without weights is larger than 2 GB")
    try:
        proto = onnx.ModelProto.FromString(message)
    except DecodeError:
        raise protobuf_weights.corrupt(path_text, "a message in it is malformed or nested too deeply") from None
    return _model(
        proto, WeightStore(path_text, folder, placeholder, [(content, offset, size) for offset, size in regions]), keep_maps
    )


def from_proto(proto: onnx.ModelProto, folder: str | os.PathLike[str] | None = None, *, keep_maps: bool = False) -> ir.Model:
    """The model of a message in memory, which is not changed; `folder` is the folder of its external data, if it has any.

    Maps are treated as by `read`.
    """
    store = WeightStore("the model", None if folder is None else checked_path(folder), secrets.token_bytes(16))
    copy = onnx.ModelProto()
    _copy(proto, copy, {"graph"})
    if proto.HasField("graph"):
        copy.graph.SetInParent()
        _copy(proto.graph, copy.graph, {"initializer"})
    for tensor in proto.graph.initializer:
        new = copy.graph.initializer.add()
        _copy(tensor, new, {"raw_data"})
        if tensor.HasField("raw_data"):
            # read once: each access to a message's bytes copies them
            raw = tensor.raw_data
            new.raw_data = raw if len(raw) < protobuf_weights.LARGE else store.add(raw)
    return _model(copy, store, keep_maps)


def _copy(source: Message, target: Message, without: set[str]) -> None:
    """Copy a message except some of its fields."""
    for field, value in source.ListFields():
        if field.name in without:
            continue
        if isinstance(value, str | bytes | int | float):
            setattr(target, field.name, value)
        else:  # a message or a repeated field
            getattr(target, field.name).MergeFrom(value)


def _parse_text(content: Buffer, form: str, path_text: str) -> onnx.ModelProto:
    if len(content) > _MAX_TEXT_BYTES:
        raise LimitError(
            f"{path_text}: a model in text format may have at most {_MAX_TEXT_BYTES} bytes; save it in the binary format."
        )
    try:
        text = bytes(content).decode("utf-8")
        if form == "text":
            _check_nesting(text, path_text)
            return onnx.parser.parse_model(text)
        proto = onnx.ModelProto()
        (json_format if form == "json" else text_format).Parse(text, proto)
        return proto
    except _TEXT_ERRORS as problem:
        raise protobuf_weights.corrupt(path_text, " ".join(str(problem).split())[:200]) from None


def _check_nesting(text: str, path_text: str) -> None:
    """Refuse brackets that are nested too deeply for onnx's parser, which recurses in native code."""
    depth = 0
    for found in _BRACKETS.finditer(text):
        bracket = found[0]
        if bracket in ("(", "[", "{", "<"):
            depth += 1
        elif bracket in (")", "]", "}") or (bracket == ">" and text[found.start() - 1] != "="):  # not that of =>
            depth -= 1
        if depth > _MAX_NESTING:
            raise protobuf_weights.corrupt(path_text, f"it is nested more than {_MAX_NESTING} deep")


def _model(proto: onnx.ModelProto, store: WeightStore, keep_maps: bool) -> ir.Model:
    """Check a message and convert it to a hub model."""
    sanitize(proto, store.label, keep_maps)
    for graph in (proto.graph, *proto.functions):
        for tensor in all_tensors(graph):
            store.check(tensor)
    try:
        model = ir.from_proto(proto)
    except (ir.serde.SerdeError, ValueError, TypeError, NotImplementedError, AttributeError, RecursionError) as problem:
        raise protobuf_weights.corrupt(store.label, _root(problem)) from None
    for g in every_graph(model):
        _check_values_defined(g, store.label)
    for owner in (model.graph, *(function.graph for function in model.functions.values())):
        _sort_nodes(owner, store.label)
    _map_tensors(model, proto, store)
    model.meta[EXTERNAL_FILES] = tuple(store.files)
    return model


def _root(problem: BaseException) -> str:
    """The root cause of an exception, in one printable line."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return quoted(" ".join(str(problem).split()) or type(problem).__name__)


def _check_values_defined(graph: ir.Graph, path_text: str) -> None:
    """Refuse a graph that uses an undefined value."""

    def check(value: ir.Value | None, reader: str) -> None:
        if value is not None and value.producer() is None and not value.is_graph_input() and not value.is_initializer():
            undefined = quoted(value.name or "")
            raise UnsafeFileError(f"{path_text}: {reader} uses the undefined value {undefined}; export the model again.")

    for node in graph:
        for value in node.inputs:
            check(value, f"the node {quoted(node.name or node.op_type)}")
    for value in graph.outputs:
        check(value, "an output")


def _sort_nodes(graph: ir.Graph, path_text: str) -> None:
    """Sort the nodes topologically if they are not: ONNX Runtime accepts such files."""
    done: set[ir.Node] = set()
    if all(_is_sorted(node, done) for node in graph):
        return
    try:
        graph.sort()
    except ValueError as problem:
        raise protobuf_weights.corrupt(path_text, _root(problem)) from None


def _is_sorted(node: ir.Node, done: set[ir.Node]) -> bool:
    """Whether a node and those of its subgraphs use only results of nodes in `done`; adds the node to them."""
    for attribute in node.attributes.values():
        parts = attribute.as_graphs() if attribute.type == ir.AttributeType.GRAPHS else ()
        for part in (attribute.as_graph(),) if attribute.type == ir.AttributeType.GRAPH else parts:
            if not all(_is_sorted(inner, done) for inner in part):
                return False
    if any((made := value.producer()) is not None and made not in done for value in node.inputs if value is not None):
        return False
    done.add(node)
    return True


def _map_tensors(model: ir.Model, proto: onnx.ModelProto, store: WeightStore) -> None:
    """Replace placeholders, and onnx_ir's external tensors, which open files by name, by tensors over the mapped files."""
    for graph in every_graph(model):
        for value in graph.initializers.values():
            found = _mapped_tensor(value.const_value, store)
            if found is not None:
                value.const_value = found
        for node in graph:
            for name, attribute in list(node.attributes.items()):
                if attribute.is_ref():
                    continue
                if attribute.type == ir.AttributeType.TENSOR:
                    found = _mapped_tensor(attribute.as_tensor(), store)
                    if found is not None:
                        node.attributes[name] = ir.AttrTensor(name, found)
                elif attribute.type == ir.AttributeType.TENSORS:
                    all_found = [_mapped_tensor(t, store) or t for t in attribute.as_tensors()]
                    node.attributes[name] = ir.AttrTensors(name, all_found)


def _mapped_tensor(tensor: ir.TensorProtocol | None, store: WeightStore) -> ir.TensorProtocol | None:
    if isinstance(tensor, ir.serde.TensorProtoTensor):
        return store.tensor(tensor.raw)
    if isinstance(tensor, ir.ExternalTensor):
        return store.tensor(ir.serde.serialize_tensor(tensor))
    return None


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """The model as a message in memory, including all weights; above 2 GB only `write` works."""
    total = sum(tensor.nbytes for tensor in _large(model))
    if total > MAX_FILE_BYTES:
        raise LimitError(f"the model has {total} bytes of weights, and a message is limited to 2 GB; write it to a file instead.")
    with _tensors_replaced(model, lambda number, tensor: tensor):
        return _message(model)


def write(
    model: ir.Model, path: str | os.PathLike[str], *, force: bool = False, external: bool | Literal["auto"] = "auto"
) -> list[str]:
    """Write a model to a file, and with `external` its weights to a second one beside it ("auto": if above 2 GB).

    Returns the paths written. Each is written under a temporary name and renamed; existing files are replaced only with `force`.
    """
    target = checked_path(path)
    refuse_overwriting(target, force)
    large = _large(model)
    if external is not True:
        placeholder = secrets.token_bytes(16)
        with _tensors_replaced(
            model, lambda number, tensor: PlaceholderTensor(tensor, placeholder + number.to_bytes(4, "little"))
        ):
            message = _serialize(model, target)
        size, pieces = protobuf_weights.insert_weights(
            message, placeholder, {i: (tensor.nbytes, tensor) for i, tensor in enumerate(large)}
        )
        if size <= MAX_FILE_BYTES:
            with replacing(target) as temporary:
                write_pieces(temporary, map(_bytes, pieces))
            return [target]
        if external is False:
            raise LimitError(f"{target}: would have {size} bytes, and an ONNX file is limited to 2 GB; allow a second file.")
    beside = f"{target}.data"
    refuse_overwriting(beside, force)
    offsets, layout = _external_layout(large)
    name = os.path.basename(beside)
    with _tensors_replaced(model, lambda number, tensor: _external_tensor(tensor, name, offsets[number])):
        message = _serialize(model, target)
    with replacing(target) as temporary, replacing(beside) as data:
        write_pieces(temporary, [message])
        write_pieces(data, map(_bytes, layout))
    return [target, beside]


def without_weights(model: ir.Model, folder: str | None = None) -> tuple[bytes, dict[str, ir.TensorProtocol]]:
    """The serialized model without its large weights, and these by name, for runtimes that accept weights from memory.

    In the message such a weight is external data of a file that does not exist. Strings, dtypes narrower than a byte, and
    weights of subgraphs stay in the message. With `folder`, weights that are mapped from a file below it are external data of
    that file instead, and are not among the weights that are returned.
    """
    large_weights = {
        str(v.name): v.const_value
        for v in model.graph.initializers.values()
        if v.const_value is not None and is_large(v.const_value) and v.const_value.dtype.bitwidth >= 8
    }
    inside = {id(tensor) for slot, tensor in _slots(model) if not (isinstance(slot, ir.Value) and slot.name in large_weights)}
    large_weights = {name: tensor for name, tensor in large_weights.items() if id(tensor) not in inside}
    detached = {id(tensor) for tensor in large_weights.values()}

    def placed(_: int, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if id(tensor) not in detached:
            return tensor
        if folder is not None and isinstance(tensor, MappedTensor):
            location = Path(os.path.realpath(tensor.file)).relative_to(folder).as_posix()
            return _external_tensor(tensor, location, tensor.offset)
        return _external_tensor(tensor, "in-memory", 0)

    with _tensors_replaced(model, placed):
        message = _serialize(model, "the model")
    in_memory = {n: t for n, t in large_weights.items() if folder is None or not isinstance(t, MappedTensor)}
    return message, in_memory


def folder_of_weights(model: ir.Model) -> str | None:
    """The folder with all files that large weights of a model are mapped from, None if there are none."""
    folders = {os.path.dirname(os.path.realpath(t.file)) for t in _large(model) if isinstance(t, MappedTensor)}
    return os.path.commonpath(folders) if folders else None


def _message(model: ir.Model) -> onnx.ModelProto:
    """The model as a message without value_info of initializers.

    ONNX Runtime's quantizer transposes weights, after which their value_info would contradict them.
    """
    message = ir.to_proto(model)
    for owner in (message.graph, *message.functions):
        for tensor in all_tensors(owner):
            _merge_notes(tensor)
    initializers = {tensor.name for tensor in message.graph.initializer}
    kept = [value for value in message.graph.value_info if value.name not in initializers or value.metadata_props]
    if len(kept) < len(message.graph.value_info):
        message.graph.ClearField("value_info")
        message.graph.value_info.extend(kept)
    return message


def _merge_notes(tensor: onnx.TensorProto) -> None:
    """Keep each entry of the metadata once: onnx_ir 1.1 writes those of a tensor that came from a message a second time."""
    notes = {entry.key: entry.value for entry in tensor.metadata_props}
    if len(notes) < len(tensor.metadata_props):
        tensor.ClearField("metadata_props")
        for key, value in notes.items():
            tensor.metadata_props.add(key=key, value=value)


def _serialize(model: ir.Model, target: str) -> bytes:
    message = _message(model)
    if message.ByteSize() > MAX_FILE_BYTES:
        raise LimitError(
            f"{target}: the graph without weights has {message.ByteSize()} bytes, and an ONNX file is limited to 2 GB."
        )
    return bytes(message.SerializeToString(deterministic=True))


def _bytes(piece: Buffer | ir.TensorProtocol) -> Buffer:
    return tensor_bytes(piece) if isinstance(piece, ir.TensorProtocol) else piece


def _slots(model: ir.Model) -> Iterator[tuple[ir.Value | tuple[ir.Node, str], ir.TensorProtocol]]:
    """The large tensors of a model and their slots: an initializer, or a node and the name of its attribute."""
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
def _tensors_replaced(model: ir.Model, replacement: Callable[[int, ir.TensorProtocol], ir.TensorProtocol]) -> Iterator[None]:
    """Temporarily replace each large tensor, and set the lowest IR version."""
    slots = list(_slots(model))
    version, model.ir_version = model.ir_version, lowest_ir_version(model)
    try:
        for number, (slot, tensor) in enumerate(slots):
            _set_tensor(slot, replacement(number, tensor))
        yield
    finally:
        for slot, tensor in slots:
            _set_tensor(slot, tensor)
        model.ir_version = version


def _set_tensor(slot: ir.Value | tuple[ir.Node, str], tensor: ir.TensorProtocol) -> None:
    if isinstance(slot, ir.Value):
        slot.const_value = tensor
    else:
        node, name = slot
        node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=node.attributes[name].doc_string)


def _external_layout(large: list[ir.TensorProtocol]) -> tuple[list[int], list[Buffer | ir.TensorProtocol]]:
    """Each tensor's offset, page-aligned so that it can be mapped, and the file's pieces; shared tensors are written once."""
    offsets: list[int] = []
    pieces: list[Buffer | ir.TensorProtocol] = []
    placed: dict[int, int] = {}
    end = 0
    for tensor in large:
        if id(tensor) not in placed:
            gap = -end % _PAGE
            placed[id(tensor)] = end + gap
            pieces += [bytes(gap), tensor]
            end += gap + tensor.nbytes
        offsets.append(placed[id(tensor)])
    return offsets, pieces


def _external_tensor(tensor: ir.TensorProtocol, file: str, offset: int) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        file, offset, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name or "",
        doc_string=tensor.doc_string, metadata_props=dict(tensor.metadata_props),
    )  # fmt: skip
