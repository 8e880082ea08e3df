"""The ONNX backend: the hub model at the lowest opset and IR version that hold it, or at those asked for."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from onnxbridge.hub import io
from onnxbridge.hub import opset as opsets
from onnxbridge.plugins import Run
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

    def runner(self, artifact: ir.Model, device: str = "auto") -> Run:
        from onnxbridge.runtime import ort

        started = ort.session(artifact, device)
        return lambda feeds: ort.run(started, feeds)

    def filename(self, stem: str) -> str:
        return f"{stem}.onnx"


backend = OnnxBackend()
