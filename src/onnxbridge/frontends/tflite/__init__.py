"""TensorFlow Lite to the hub: `.tflite` files. TensorFlow is not needed, and an interpreter only to verify."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from onnxbridge.formats.tflite import read_model, schema
from onnxbridge.frontends.tflite.ops import rule
from onnxbridge.hub.io.detect_format import detect_format
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.rules import Rules


class TFLite(Frontend):
    """The frontend. A source is the path of a `.tflite` file; a pair (path, signature) selects a signature."""

    name = "tflite"
    title = "TensorFlow Lite"
    aliases = ("litert", "tensorflow-lite")
    # a kernel rounds twice: to a fraction of a step, of some bits, then to a step; those of functions interpolate tables
    quantized_roundoff = 2.0**-11

    @property
    def rules(self) -> Rules:
        return rule

    def require(self, verify: bool = True) -> None:
        schema.schema()
        if verify:
            from onnxbridge.frontends.tflite import interpreter

            interpreter.require()

    def accepts(self, source: Any) -> bool:
        path, _ = _split(source)
        return isinstance(path, (str, os.PathLike)) and os.path.isfile(path) and detect_format(path) == "tflite"

    def isolates(self, source: Any) -> bool:
        return True

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        """The source as a hub model.

        Raises:
            ConversionError: with every operator that cannot be converted.
            UsageError: for a signature, an input or a size that the model does not have.
            UnsafeFileError: for a damaged file.
        """
        from onnxbridge.frontends.tflite import graph_reader, signatures, states

        found = states.read(*_split(source))
        shapes = signatures.shapes_of(found.model, found.signature, inputs, dynamic)
        hub = graph_reader.hub_model(found.model, found.signature, shapes)
        found.describe(hub)
        return hub

    def origin(self, source: Any) -> dict[str, str]:
        model = read_model.read(_split(source)[0])
        found = {"description": model.description} if model.description else {}
        return found | {"schema_version": str(model.version)} | dict(model.metadata)

    def runs_here(self) -> bool:
        from onnxbridge.frontends.tflite import interpreter

        return interpreter.is_installed()

    def runner(self, source: Any, device: str = "auto") -> Run:
        from onnxbridge.frontends.tflite import interpreter

        return interpreter.runner(*_split(source))

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        from onnxbridge.frontends.tflite import interpreter

        return interpreter.watch(*_split(source), feeds, see)


def _split(source: Any) -> tuple[Any, str | None]:
    """A source and the signature selected with it."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[1], str):
        path, signature = source
        if isinstance(path, (str, os.PathLike)) and os.path.isfile(path) and not os.path.exists(signature):
            return path, signature
    return source, None


frontend = TFLite()

__all__ = ["TFLite", "frontend"]
