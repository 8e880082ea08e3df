"""Detects the model format of a path by content, not by file name, with bounded reads and without running any code."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
from typing import BinaryIO

from onnxbridge.errors import OnnxbridgeError, UnsafeFileError, UsageError
from onnxbridge.hub.io import protobuf_weights
from onnxbridge.hub.io.safe_files import checked_path, map_file, open_file
from onnxbridge.hub.io.zip_archives import DAMAGED

_HEAD = 4096
_MAX_FIELDS = 100_000
_MAX_DIRECTORY_BYTES = 64 << 20
_ONNX_TEXT = re.compile(rb"\s*<\s*(?:ir_version|opset_import|producer_name)\b|\s*(?:#[^\n]*\n\s*)*ir_version\s*:\s*\d+")
_ONNX_JSON = re.compile(rb'\s*\{\s*"(?:irVersion|ir_version|opsetImport|opset_import)"')
_MXNET_JSON = re.compile(rb'\s*\{\s*"(?:nodes|arg_nodes|heads|node_row_ptr|attrs)"\s*:')
_MXNET_PARAMS = (0x112).to_bytes(8, "little") + bytes(8)
_TENSORFLOW_TEXT = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(node|meta_info_def|graph_def)\s*:?\s*\{")
_TENSORFLOW_OPERATOR = re.compile(rb"_?[A-Z][A-Za-z0-9_>]*")
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_ONNX_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_COREML_TYPES = range(200, 4000)

_PYTORCH = "give it to the PyTorch frontend (--from pytorch)"
# format -> (description, hint for when another format was expected)
KINDS = {
    "onnx": ("an ONNX model", "give it to the ONNX frontend (--from onnx)"),
    "pt2": ("a PyTorch program (torch.export.save)", _PYTORCH),
    "torchscript": ("a TorchScript archive", _PYTORCH),
    "pytorch-pickle": (
        "a pickle (torch.save), which runs code when it is opened",
        "give a state dict together with the function that builds its module (MODULE:FACTORY FILE); "
        "load a whole module where you trust it and save it with torch.export.save, then convert the .pt2 file",
    ),
    "keras": ("a Keras model", "give it to the TensorFlow frontend (--from tensorflow)"),
    "savedmodel": ("a TensorFlow SavedModel", "give it to the TensorFlow frontend (--from tensorflow)"),
    "graphdef": ("a TensorFlow graph (GraphDef)", "give it to the TensorFlow frontend (--from tensorflow)"),
    "metagraph": ("a TensorFlow MetaGraphDef", "give it to the TensorFlow frontend (--from tensorflow)"),
    "saved-model-file": ("the saved_model.pb of a SavedModel", "give its folder, which also has the variables"),
    "keras-h5": ("an HDF5 file (old Keras)", "give it to the TensorFlow frontend (--from tensorflow)"),
    "tflite": ("a TensorFlow Lite model", "give it to the TensorFlow Lite frontend (--from tflite)"),
    "mxnet-symbol": ("an MXNet symbol", "give it to the MXNet frontend with its .params file (--from mxnet)"),
    "mxnet-params": ("MXNet parameters", "give the symbol file as well (--from mxnet)"),
    "mlpackage": ("a Core ML package", "give it to the Core ML frontend (--from coreml)"),
    "mlmodel": ("a Core ML model", "give it to the Core ML frontend (--from coreml)"),
    "safetensors": ("weights without a model (safetensors)", "load them into the model's own code and export that"),
    "python": ("Python source, which is not run by itself", "name the function that builds the module (net:load of net.py)"),
    "unknown": ("not a known model format, or truncated", "get the file again or export the model again"),
}


def detect_format(path: str | os.PathLike[str]) -> str:
    """The format of the model at a path: a key of `KINDS`.

    Raises:
        UsageError: if the path does not exist.
        UnsafeFileError: for pipes, devices and paths with a NUL character.
    """
    text = checked_path(path)
    try:
        mode = os.stat(text).st_mode
    except FileNotFoundError:
        raise UsageError(f"{text}: no such file.") from None
    except OSError as error:
        raise UsageError(f"{text}: cannot be opened ({error.strerror}).") from None
    if stat.S_ISDIR(mode):
        return _directory_format(text)
    descriptor = open_file(text)
    with open(descriptor, "rb", closefd=False) as file:
        head = file.read(_HEAD)
        kind = _header_format(head, file)
    if kind:
        os.close(descriptor)
        return kind
    content = map_file(descriptor)
    with memoryview(content) as data:
        kind = _tensorflow_format(data) or _protobuf_format(data)
    if not isinstance(content, bytes):
        content.close()
    return "python" if kind == "unknown" and text.endswith(".py") else kind


def wrong_format_error(
    path: str | os.PathLike[str], kind: str, expected: str = "an ONNX model", hint: str | None = None
) -> OnnxbridgeError:
    """The error for a file of another format than expected: unsafe for pickles and unknown content, else a usage error.

    `hint` replaces the format's own hint.
    """
    description, default_hint = KINDS[kind]
    error = UnsafeFileError if kind in ("pytorch-pickle", "unknown") else UsageError
    instead = "" if kind == "unknown" else f", not {expected}"
    return error(f"{checked_path(path)}: is {description}{instead}; {hint or default_hint}.")


def onnx_text_format(head: bytes) -> str:
    """The ONNX text format that a file's first bytes belong to: "text" (onnx.parser), "textproto", "json" or "" (none)."""
    if _ONNX_JSON.match(head):
        return "json"
    if _ONNX_TEXT.match(head):
        return "text" if head.lstrip().startswith(b"<") else "textproto"
    return ""


def _directory_format(path: str) -> str:
    def contains(name: str) -> bool:
        return os.path.exists(os.path.join(path, name))

    if contains("saved_model.pb") or contains("saved_model.pbtxt"):
        return "savedmodel"
    return "mlpackage" if contains("Manifest.json") and contains("Data") else "unknown"


def _header_format(head: bytes, file: BinaryIO) -> str:
    """The format according to the first bytes, "" if the whole protobuf message has to be inspected."""
    if head.startswith(b"PK\x03\x04"):
        return _zip_format(file)
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "keras-h5"
    if head[4:8] == b"TFL3":
        return "tflite"
    if head.startswith(_MXNET_PARAMS):
        return "mxnet-params"
    if _PICKLE.match(head):
        return "pytorch-pickle"
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= 100 << 20:
        return "safetensors"
    if onnx_text_format(head):
        return "onnx"
    if _MXNET_JSON.match(head):
        return "mxnet-symbol"
    if found := _TENSORFLOW_TEXT.match(head):
        return "graphdef" if found[1] == b"node" else "metagraph"
    return ""


def _zip_format(file: BinaryIO) -> str:
    """The format of a zip archive, by its member names."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 65_557))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or int.from_bytes(tail[end + 12 : end + 16], "little") > _MAX_DIRECTORY_BYTES:
        return "unknown"
    try:
        names = zipfile.ZipFile(file).namelist()
    except DAMAGED:
        return "unknown"
    inner = {name.split("/", 1)[-1] for name in names} | set(names)
    if inner & {"serialized_exported_program.json", "archive_format", "models/model.json"}:
        return "pt2"
    if "constants.pkl" in inner and any("/code/" in f"/{name}" for name in names):
        return "torchscript"
    if "data.pkl" in inner:
        return "pytorch-pickle"
    if all(name.endswith(".npy") for name in names) and any(name.startswith(("arg:", "aux:")) for name in names):
        return "mxnet-params"
    return "keras" if {"config.json", "metadata.json"} <= set(names) else "unknown"


def _protobuf_format(data: memoryview) -> str:
    """Whether a protobuf message is an ONNX or a Core ML model. Truncated ones count, so that their reader reports it."""
    seen: set[int] = set()
    onnx = True
    try:
        for count, (number, kind, start, begin, stop) in enumerate(protobuf_weights.fields(data, 0, len(data), partial=True)):
            onnx = onnx and _ONNX_FIELDS.get(number) == kind
            if number in (2, 3, 4) and onnx:
                onnx = _is_utf8_text(bytes(data[begin : min(stop, begin + 200)]))
            if number == 1 and kind == 0:
                onnx = onnx and protobuf_weights.varint(data, begin, len(data))[0] < 1000
            if count == 0 and number != 1 and not onnx:
                return "unknown"
            seen.add(number)
            if count > _MAX_FIELDS or (not onnx and start > 0 and any(n in _COREML_TYPES for n in seen)):
                break
    except protobuf_weights.Malformed:
        onnx = onnx and 7 in seen
    if onnx and 7 in seen:
        return "onnx"
    return "mlmodel" if not onnx and {1, 2} & seen and any(n in _COREML_TYPES for n in seen) else "unknown"


def _tensorflow_format(data: memoryview) -> str:
    """Whether a protobuf message is a TensorFlow graph, a MetaGraphDef or a SavedModel; "" for others."""
    first = _field(data, 0, len(data))
    if first is None:
        return ""
    number, kind, begin, stop = first
    if (number, kind) == (1, 2) and _is_node(data, begin, stop):
        return "graphdef"
    second = _field(data, stop, len(data))
    if second is None or second[:2] != (2, 2):
        return ""
    if (number, kind) == (1, 2):  # MetaGraphDef: meta_info_def, graph_def
        return "metagraph" if _is_graph(data, *second[2:]) else ""
    if (number, kind) == (1, 0):  # SavedModel: schema version, MetaGraphDef
        inner = _field(data, *second[2:])
        following = None if inner is None or inner[:2] != (1, 2) else _field(data, inner[3], second[3])
        is_saved_model = following is not None and following[:2] == (2, 2) and _is_graph(data, *following[2:])
        return "saved-model-file" if is_saved_model else ""
    return ""


def _field(data: memoryview, start: int, stop: int) -> tuple[int, int, int, int] | None:
    """The first field of a message: its number, wire type, and where its content begins and ends."""
    try:
        for number, kind, _, begin, end in protobuf_weights.fields(data, start, stop, partial=True):
            return number, kind, begin, end
    except protobuf_weights.Malformed:
        pass
    return None


def _is_graph(data: memoryview, begin: int, stop: int) -> bool:
    node = _field(data, begin, stop)
    return node is not None and node[:2] == (1, 2) and _is_node(data, *node[2:])


def _is_node(data: memoryview, begin: int, stop: int) -> bool:
    """Whether a message is a node of a TensorFlow graph: it starts with a name and an operator."""
    name = _field(data, begin, stop)
    op = None if name is None or name[:2] != (1, 2) else _field(data, name[3], stop)
    return op is not None and op[:2] == (2, 2) and bool(_TENSORFLOW_OPERATOR.fullmatch(bytes(data[op[2] : op[3]])))


def _is_utf8_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return not re.search(rb"[\x00-\x08]", data)
