"""The ONNX backend: the hub model at the lowest opset and IR version that hold it, or at those asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxbridge.hub import io
from onnxbridge.hub import opset as opsets
from onnxbridge.rules import Rules


class OnnxBackend:
    """Writes ONNX."""

    name = "onnx"
    title = "ONNX"
    package = ""
    rules: Rules | None = None

    def from_hub(self, model: ir.Model, *, opset: int | None = None) -> ir.Model:
        """`opset`: the version of ai.onnx to write; by default the lowest from 18 up that holds the graph as it is."""
        return opsets.from_hub(model.clone(), opset if opset is not None else opsets.lowest(model))

    def native(self, artifact: ir.Model) -> onnx.ModelProto:
        return io.to_proto(artifact)

    def save(self, artifact: ir.Model, path: Path) -> list[Path]:
        return [Path(p) for p in io.write(artifact, path)]

    def run(self, artifact: ir.Model, feeds: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        from onnxbridge.runtime import ort

        return ort.run(ort.session(artifact, "cpu"), feeds)

    def filename(self, stem: str) -> str:
        return f"{stem}.onnx"


backend = OnnxBackend()
