"""Reading, checking, making and writing ONNX models. A model is the path of a file, or parts as `onnx_parts` describes them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

import onnxbridge
from onnxbridge import plugins
from onnxbridge.errors import UnsafeFileError, UsageError, first_line
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.json_calls.onnx_parts import model_of, part_of

Model = str | dict[str, Any]


def version() -> dict[str, str]:
    return {"onnxbridge": onnxbridge.__version__, "onnx": onnx.__version__}


def hub_of(model: Model) -> ir.Model:
    """A model as `onnxbridge.load` reads it: any format with a frontend."""
    if isinstance(model, dict):
        return ir.serde.deserialize_model(model_of(model))
    return onnxbridge.load(model)


def unchanged(model: Model) -> ir.Model:
    """A model as its file has it, with its own opset; of another format than ONNX, as `onnxbridge.load` reads it."""
    if isinstance(model, str) and detect_format(model) == "onnx":
        return onnx_files.read(model)
    return hub_of(model)


def signature(model: Model) -> dict[str, Any]:
    """Names, dtypes and shapes of inputs and outputs; a dynamic size is its name, or "?"."""

    def described(value: ir.Value) -> dict[str, Any]:
        dtype = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name if value.dtype is not None else "?"
        shape = None if value.shape is None else [d if isinstance(d, int) else str(d.value or "?") for d in value.shape]
        return {"name": value.name, "dtype": dtype, "shape": shape}

    graph = hub_of(model).graph
    return {"inputs": [described(v) for v in graph.inputs], "outputs": [described(v) for v in graph.outputs]}


def check(part: Model) -> str:
    """Check a model or one of its parts with onnx.checker; its kind.

    Raises:
        UsageError: with the checker's message, if it is not valid.
    """
    try:
        if isinstance(part, str):
            onnx_files.read(part)  # refuses files that are not what they seem before the checker opens them
            onnx.checker.check_model(part, full_check=True)
            return "model"
        proto = part_of(part)
        if isinstance(proto, onnx.ModelProto):
            onnx.checker.check_model(proto, full_check=True)
        elif isinstance(proto, onnx.GraphProto):
            onnx.checker.check_graph(proto)
        elif isinstance(proto, onnx.NodeProto):
            onnx.checker.check_node(proto)
        elif isinstance(proto, onnx.TensorProto):
            onnx.checker.check_tensor(proto)
        elif isinstance(proto, onnx.ValueInfoProto):
            onnx.checker.check_value_info(proto)
        else:
            onnx.checker.check_attribute(proto)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        raise UsageError(f"not valid: {first_line(error)}") from error
    return type(proto).__name__.removesuffix("Proto").lower()


def readable(part: Model) -> str:
    """A model or part as text."""
    if isinstance(part, str):
        return str(onnx.printer.to_text(ir.serde.serialize_model(unchanged(part))))
    proto = part_of(part)
    if isinstance(proto, (onnx.ModelProto, onnx.GraphProto)):
        return str(onnx.printer.to_text(proto))
    return str(proto).strip()


def save(model: Model, path: str) -> str:
    """Write a model as ONNX, with its weights beside it where they exceed protobuf's 2 GB; the path.

    Raises:
        UsageError: if the parts do not make a model.
    """
    written = plugins.backend("onnx").save(unchanged(model), Path(path))
    return os.path.abspath(written[0])


def infer_shapes(model: Model, path: str) -> str:
    """Write a model with the shapes of all values that ONNX can infer; the path."""
    proto = ir.serde.serialize_model(unchanged(model))
    try:
        found = onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise UnsafeFileError(f"the shapes cannot be inferred: {first_line(error)}") from error
    onnx.save(found, path)
    return os.path.abspath(path)
