"""The Core ML backend: the hub model as an ML program (.mlpackage), through coremltools' MIL builder. No Mac is needed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from onnxbridge.errors import UsageError
from onnxbridge.frameworks import coremltools
from onnxbridge.plugins import Run
from onnxbridge.rules import Rules

if TYPE_CHECKING:
    from onnxbridge.backends.coreml.artifact import CoreMLModel

TARGETS = ("iOS15", "iOS16", "iOS17", "iOS18")
PRECISIONS = ("fp32", "fp16")


class CoreMLBackend:
    """Writes Core ML."""

    name = "coreml"
    title = "Core ML"
    package = "coremltools"

    @property
    def rules(self) -> Rules:
        from onnxbridge.backends.coreml.ops import rule

        return rule

    def from_hub(
        self,
        model: ir.Model,
        *,
        minimum_deployment_target: str = "iOS17",
        compute_precision: str = "fp32",
        bounds: Mapping[str, tuple[int, int | None]] | None = None,
    ) -> CoreMLModel:
        """The model as an ML program.

        Args:
            minimum_deployment_target: the oldest system that has to run it: iOS15, iOS16, iOS17 or iOS18, which stand for the
                macOS, watchOS and tvOS of their year too. Newer ones have more operators.
            compute_precision: "fp32", or "fp16" for half the size and the Neural Engine; then an operator whose constants float16
                cannot hold stays in float32, and the artifact's notes say so.
            bounds: the least and the largest size of dynamic dimensions by name, {"N": (1, 64)}. Core ML needs a bound for each;
                where none is given, 2048 is taken and said.
        """
        if minimum_deployment_target not in TARGETS:
            raise UsageError(f"minimum_deployment_target={minimum_deployment_target!r} is none of {', '.join(TARGETS)}")
        if compute_precision not in PRECISIONS:
            raise UsageError(f"compute_precision={compute_precision!r} is none of {', '.join(PRECISIONS)}")
        ct = coremltools()
        from onnxbridge.backends.coreml.program import convert

        return convert(model, ct.target[minimum_deployment_target], compute_precision, bounds or {})

    def native(self, artifact: CoreMLModel) -> Any:
        """coremltools' MLModel."""
        return artifact.model

    def save(self, artifact: CoreMLModel, path: Path) -> list[Path]:
        """Write an .mlpackage, which is a folder."""
        if path.suffix == ".mlpackage":
            artifact.model.save(str(path))
        else:  # coremltools writes under a name of its own suffix only
            named = path.with_name(path.name + ".mlpackage")
            artifact.model.save(str(named))
            shutil.move(named, path)
        return [path]

    def runner(self, artifact: CoreMLModel, device: str = "auto") -> Run:
        """By Core ML itself on a Mac, by our interpreter of ML programs elsewhere."""
        return artifact.run

    def open(self, path: Path) -> CoreMLModel:
        """A package that this backend once wrote."""
        from onnxbridge.backends.coreml.artifact import CoreMLModel

        return CoreMLModel.of(coremltools().models.MLModel(str(path), skip_model_load=True))

    def filename(self, stem: str) -> str:
        return f"{stem}.mlpackage"


backend = CoreMLBackend()
