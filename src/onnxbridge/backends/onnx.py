"""The ONNX backend: the hub model at the lowest opset and IR version that hold it, or at those asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import onnx
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.opset import opset_conversion as opsets
from onnxbridge.hub.opset.runtime_versions import limits
from onnxbridge.hub.passes.float64_attributes import write_out_inexact
from onnxbridge.plugin_options import Setting
from onnxbridge.plugins import Run
from onnxbridge.rules import Rules


class OnnxBackend:
    """Writes ONNX."""

    name = "onnx"
    title = "ONNX"
    package = ""
    rules: Rules | None = None
    keeps_functions = True
    suffixes = (".onnx",)

    def from_hub(
        self,
        model: ir.Model,
        *,
        opset: Annotated[int | None, Setting("the opset to write; by default the lowest from 18 that holds the graph.")] = None,
        for_runtime: Annotated[
            str | None, Setting("what this release of a runtime loads, as onnxruntime==1.17.", "NAME==VERSION")
        ] = None,
    ) -> ir.Model:
        """The model at the version of ai.onnx that was asked for, by number or by a runtime that is to load it."""
        self.check_options(opset=opset, for_runtime=for_runtime)
        model = model.clone()
        write_out_inexact(model)
        if for_runtime is not None:
            holds = min(limits(for_runtime).opset, opsets.lowest(model))
            return opsets.for_runtime(opsets.from_hub(model, holds), for_runtime)
        return opsets.from_hub(model, opset if opset is not None else opsets.lowest(model))

    def check_options(self, *, opset: int | None = None, for_runtime: str | None = None) -> None:
        """Look at the options before a model is read.

        Raises:
            UsageError: for an opset that does not exist, and for a runtime that is not known.
        """
        if for_runtime is not None and opset is not None:
            raise UsageError("give either opset or for_runtime")
        if for_runtime is not None:
            limits(for_runtime)
        if opset is not None:
            opsets.check_version(opset)

    def native(self, artifact: ir.Model) -> onnx.ModelProto:
        return onnx_files.to_proto(artifact)

    def save(self, artifact: ir.Model, path: Path) -> list[Path]:
        return [Path(p) for p in onnx_files.write(artifact, path)]

    def runner(self, artifact: ir.Model, device: str = "auto") -> Run:
        from onnxbridge.runtime import devices

        return devices.runner(artifact, device)

    def filename(self, stem: str) -> str:
        return f"{stem}.onnx"


backend = OnnxBackend()
