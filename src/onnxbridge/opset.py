"""Opset conversion for users: `onnxbridge.opset.convert(model, to=17)`, up and down."""

from __future__ import annotations

from typing import overload

import onnx
import onnx_ir as ir

from onnxbridge.hub import io
from onnxbridge.hub.opset import from_hub


@overload
def convert(model: onnx.ModelProto, to: int) -> onnx.ModelProto: ...
@overload
def convert(model: ir.Model, to: int) -> ir.Model: ...
def convert(model: onnx.ModelProto | ir.Model, to: int) -> onnx.ModelProto | ir.Model:
    """The model at opset `to`, as a new model of the kind that was given; names of values are kept.

    Raises:
        ConversionError: with every node in the way, naming operator, version and reason. A model is never returned unconverted.
    """
    if isinstance(model, ir.Model):
        return from_hub(model.clone(), to)
    if isinstance(model, onnx.ModelProto):
        return io.to_proto(from_hub(io.from_proto(model), to))
    raise TypeError(f"convert() takes an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")
