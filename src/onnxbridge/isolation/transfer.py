"""What an isolated process and its parent exchange, beside requests: hub models, arrays and errors.

The process is not trusted: a model comes back as an ONNX file beside a JSON file of notes, arrays as the initializers of another
ONNX file, errors as JSON. All are read with the checks of untrusted files.
"""

from __future__ import annotations

import builtins
import json
import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.diagnostics import Problem, SourceLocation, one_line
from onnxbridge.errors import (
    ConversionError,
    LimitError,
    MissingFrameworkError,
    OnnxbridgeError,
    UnsafeFileError,
    UsageError,
    VerificationError,
)
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.io.onnx_files import EXTERNAL_FILES
from onnxbridge.hub.io.safe_files import map_file, open_inside
from onnxbridge.hub.ir import fold
from onnxbridge.hub.ir.graphs import every_graph
from onnxbridge.hub.ir.values import ROWS, SORTED
from onnxbridge.hub.opset.opset_conversion import SOURCE_OPSET

MAX_JSON_BYTES = 64 << 20
_STRUCTURE = "structure"
_MAX_DEPTH = 20
_ERRORS = {
    error.__name__: error
    for error in (UsageError, UnsafeFileError, MissingFrameworkError, LimitError, VerificationError, OnnxbridgeError)
}


class Damaged(Exception):
    """What the process sent is not in the form that it has to be in."""


def write_model(model: ir.Model, folder: Path, name: str) -> None:
    """Write a hub model as `name`.onnx, its weights in one file beside it, and its notes as `name`.json."""
    onnx_files.write(model, folder / f"{name}.onnx", force=True)
    sorted_, rows, computed = [], [], []
    for graph in every_graph(model):
        for value in _values(graph):
            if value.meta.get(SORTED):
                sorted_.append(value.name)
            if ROWS in value.meta:
                kind, counted, fewer = value.meta[ROWS]
                rows.append([value.name, kind, counted.name, fewer])
            if value.meta.get(fold.COMPUTED):
                computed.append(value.name)
    notes = {
        "sorted": sorted_, "rows": rows, "computed": computed, "opset": model.meta.get(SOURCE_OPSET),
        "external": list(model.meta.get(EXTERNAL_FILES, ())),
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(notes))


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]


def read_model(folder: Path, name: str) -> ir.Model:
    """The model that `write_model` wrote.

    Raises:
        UnsafeFileError: if the model is none.
        Damaged: if its notes are none.
    """
    model = onnx_files.read(folder / f"{name}.onnx", keep_maps=True)
    notes = read_json(folder, f"{name}.json")
    if not isinstance(notes, dict):
        raise Damaged("the notes of a model")
    values = {v.name: v for graph in every_graph(model) for v in _values(graph)}
    for found in _strings(notes.get("sorted")):
        if found in values:
            values[found].meta[SORTED] = True
    for found in _strings(notes.get("computed")):
        if found in values:
            values[found].meta[fold.COMPUTED] = True
    for row in _list(notes.get("rows")):
        if not (isinstance(row, list) and len(row) == 4 and row[1] in ("splits", "lengths") and isinstance(row[3], int)):
            raise Damaged("the notes of a model")
        if row[0] in values and row[2] in values:
            values[row[0]].meta[ROWS] = row[1], values[row[2]], row[3]
    model.meta[EXTERNAL_FILES] = tuple(_strings(notes.get("external")))
    if isinstance(notes.get("opset"), int):
        model.meta[SOURCE_OPSET] = notes["opset"]
    return model


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise Damaged("a list in a message")
    return found


def _strings(found: Any) -> list[str]:
    return [text for text in _list(found) if isinstance(text, str)]


def read_json(folder: Path, name: str) -> Any:
    """The content of a JSON file in a folder."""
    content = map_file(open_inside(os.fspath(folder), name, "the isolated process wrote"))
    return parsed(bytes(content[: MAX_JSON_BYTES + 1]))


def parsed(text: bytes) -> Any:
    """A JSON message.

    Raises:
        Damaged: if it is none, or too long.
    """
    if len(text) > MAX_JSON_BYTES:
        raise Damaged("a message that is too long")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Damaged("a message that is not JSON") from error


def write_arrays(values: Mapping[str, Any], path: Path) -> None:
    """Write arrays, and lists, dicts and None among them, to a file."""
    tensors: list[ir.Value] = []

    def described(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, (list, tuple)):
            return ["list", [described(item) for item in value]]
        if isinstance(value, Mapping):
            return ["dict", [[described(np.asarray(k)), described(v)] for k, v in value.items()]]
        array = np.asarray(value)
        tensor = _strings_tensor(array) if array.dtype.kind in "OUST" else ir.Tensor(array)
        tensor.name = f"t{len(tensors)}"
        tensors.append(ir.Value(name=tensor.name, const_value=tensor, shape=tensor.shape, type=ir.TensorType(tensor.dtype)))
        return len(tensors) - 1

    structure = {name: described(value) for name, value in values.items()}
    graph = ir.Graph([], [], nodes=[], initializers=tensors, opset_imports={"": 26}, name="arrays")
    model = ir.Model(graph, ir_version=10, metadata_props={_STRUCTURE: json.dumps(structure)})
    onnx_files.write(model, path, force=True)


def read_arrays(path: Path) -> dict[str, Any]:
    """The values that `write_arrays` wrote; arrays are copies, so that the file may be removed.

    Raises:
        UnsafeFileError, Damaged: if the file is not in that form.
    """
    model = onnx_files.read(path, keep_maps=True)
    tensors = [model.graph.initializers.get(f"t{i}") for i in range(len(model.graph.initializers))]

    def value(described: Any, depth: int = 0) -> Any:
        if described is None:
            return None
        if isinstance(described, int) and 0 <= described < len(tensors):
            found = tensors[described]
            if found is not None and found.const_value is not None:
                tensor = found.const_value
                return _string_array(tensor) if tensor.dtype == ir.DataType.STRING else np.array(tensor.numpy())
        if isinstance(described, list) and len(described) == 2 and isinstance(described[1], list) and depth < _MAX_DEPTH:
            if described[0] == "list":
                return [value(item, depth + 1) for item in described[1]]
            if described[0] == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in described[1]):
                return {value(k, depth + 1).item(): value(v, depth + 1) for k, v in described[1]}
        raise Damaged("arrays")

    structure = parsed(model.metadata_props.get(_STRUCTURE, "").encode())
    if not isinstance(structure, dict):
        raise Damaged("arrays")
    return {name: value(described) for name, described in structure.items()}


def _strings_tensor(array: np.ndarray[Any, Any]) -> ir.StringTensor:
    encoded = [item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape") for item in array.ravel()]
    return ir.StringTensor(encoded, shape=ir.Shape(array.shape))


def _string_array(tensor: Any) -> np.ndarray[Any, Any]:
    found = np.empty(tensor.size, object)
    found[:] = [item.decode("utf-8", "surrogateescape") for item in tensor.string_data()]
    return found.reshape(tensor.shape.numpy())


def error_message(error: BaseException) -> dict[str, Any]:
    """An error as a message."""
    found: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if os.environ.get("ONNXBRIDGE_DEBUG"):
        found["traceback"] = "".join(traceback.format_exception(error))
    if isinstance(error, OSError) and error.errno is not None:
        found |= {"message": str(error.strerror), "errno": error.errno}
    if isinstance(error, ConversionError):
        found |= {"direction": error.direction, "problems": [p.as_dict() for p in error.problems]}
    return found


def raised(message: Any) -> Exception:
    """The error of a message, to be raised. Of other errors than ours, the class has the same name and the text is the same."""
    error = _raised(message)
    if isinstance(message.get("traceback"), str) and os.environ.get("ONNXBRIDGE_DEBUG"):
        error.add_note("\n".join(map(one_line, message["traceback"].splitlines())))
    return error


def _raised(message: Any) -> Exception:
    if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("type", "message")):
        raise Damaged("an error")
    name, text = message["type"], message["message"]
    if name == "ConversionError":
        return ConversionError(str(message.get("direction")), [_problem(p) for p in _list(message.get("problems"))])
    if isinstance(message.get("errno"), int):
        return OSError(message["errno"], text)
    known: Any = _ERRORS.get(name) or getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, UnicodeError):
        return known(text)
    other: type[Exception] = type(name if name.isidentifier() else "Error", (Exception,), {})
    return other(text)


def _problem(found: Any) -> Problem:
    if not isinstance(found, dict):
        raise Damaged("a problem")
    locations = []
    for one in _list(found.get("locations")):
        if not isinstance(one, dict) or not isinstance(one.get("line"), int):
            raise Damaged("a problem")
        locations.append(SourceLocation(str(one.get("file")), one["line"], str(one.get("scope")), str(one.get("node"))))
    return Problem(str(found.get("op")), str(found.get("reason")), str(found.get("hint")), tuple(locations))

