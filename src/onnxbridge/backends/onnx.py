"""The ONNX backend: the hub model at the lowest opset and IR version that hold it, or at the requested ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import onnx
import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.hub.io import onnx_files
from onnxbridge.hub.ir.schemas import unchanged_at
from onnxbridge.hub.opset import opset_conversion as opsets
from onnxbridge.hub.opset.runtime_versions import limits
from onnxbridge.hub.passes.float64_attributes import decompose_inexact
from onnxbridge.hub.patterns import canonicalize
from onnxbridge.plugin_options import Setting
from onnxbridge.plugin_protocols import Backend, Run

_IMPLEMENTED = 23
"""The opset whose operators ONNX Runtime implements: of 24 it has no Swish, and no Attention with a mask for all queries."""

_GELU = 20
"""The opset that introduced Gelu, which raises the default opset of a model that contains its formula."""


class OnnxBackend(Backend):
    """Writes ONNX."""

    name = "onnx"
    title = "ONNX"
    keeps_functions = True
    suffixes = (".onnx",)
    hints = {
        "tensorrt": "convert to onnx, which TensorRT reads",
        "openvino": "convert to onnx, which OpenVINO reads",
        "jax": "convert to onnx or tensorflow, which JAX's own tools read",
        ".engine": "convert to onnx, and the file with TensorRT",
    }

    def from_hub(
        self,
        model: ir.Model,
        *,
        opset: Annotated[int | None, Setting("the opset to write; by default the lowest from 18 that holds the graph.")] = None,
        for_runtime: Annotated[
            str | None, Setting("what this release of a runtime loads, as onnxruntime==1.17.", "NAME==VERSION")
        ] = None,
    ) -> ir.Model:
        """The model at the requested version of ai.onnx, which is given as a number or as the runtime that is to load it."""
        self.check_options(opset=opset, for_runtime=for_runtime)
        model = model.clone()
        if opset is None and for_runtime is None:
            canonicalize(model, lambda op_type: unchanged_at(op_type, _GELU))
        decompose_inexact(model)
        to = opset if opset is not None else opsets.lowest_opset(model)
        to = to if for_runtime is None else min(limits(for_runtime).opset, to)
        canonicalize(model, lambda op_type: unchanged_at(op_type, min(to, _IMPLEMENTED)))
        decompose_inexact(model)  # of the operators that were recognized
        made = opsets.from_hub(model, to)
        return made if for_runtime is None else opsets.for_runtime(made, for_runtime)

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

    def main_line(self, error: BaseException | str) -> str:
        line = super().main_line(error)
        if "Graph attribute inferencing failed" not in line:
            return line
        return (
            f"{line}; ONNX Runtime checks every branch at the declared sizes: leave them dynamic, or bind the input that "
            "chooses the branch to a number (--inputs NAME=NUMBER)"
        )

    def filename(self, stem: str) -> str:
        return f"{stem}.onnx"


backend = OnnxBackend()
