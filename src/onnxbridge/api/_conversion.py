"""What `convert` returns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxbridge import plugins

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnxbridge.runtime.verify.report import Report


@dataclass(repr=False)
class Conversion:
    """The result of `convert`.

    Attributes:
        hub: the hub model, an `onnx_ir.Model` at the hub's opset.
        artifact: the backend's own object. Use `model` and `save`.
        report: the verification `Report`. None with `verify=False`.
        source, target: the names of the frontend and the backend.
        paths: the files and folders that were written.
        source_files: the files that the model was read from. `save` never overwrites them.
    """

    hub: ir.Model
    artifact: Any
    source: str
    target: str
    report: Report | None = None
    paths: list[Path] = field(default_factory=list)
    source_files: Sequence[Path] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What differs from the source, in words: renamed values, bounds of sizes, fixed inputs."""
        from onnxbridge.hub.ir import provenance, states
        from onnxbridge.hub.passes import bind_inputs

        sizes = self.hub.metadata_props.get(provenance.SIZES)
        own = [f"valid only for {sizes}: the traced code branches on size"] if sizes else []
        if training := self.hub.metadata_props.get(provenance.TRAINING):
            own.append(f"the source is in training mode ({training}); converted for inference, as after eval()")
        own += [*states.notes(self.hub), *bind_inputs.notes(self.hub)]
        return (*own, *plugins.backend(self.target).info(self.artifact).notes)

    @cached_property
    def model(self) -> Any:
        """The target framework's own object; an `onnx.ModelProto` for "onnx"."""
        return plugins.backend(self.target).native(self.artifact)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the converted model and return the paths written.

        Nothing is overwritten without `force`; the source never is.
        """
        from onnxbridge.atomic_write import write_atomically

        backend = plugins.backend(self.target)
        self.paths = write_atomically(Path(path), force, lambda free: backend.save(self.artifact, free), self.source_files)
        return self.paths

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        report = self.report
        return {
            "source": self.source, "target": self.target, "written": [str(p) for p in self.paths], "notes": list(self.notes),
            "verdict": report.verdict if report else None, "passed": report.passed if report else None,
            "verification": report.as_dict() if report else None,
        }  # fmt: skip

    def _repr_html_(self) -> str:
        from onnxbridge.reports.notebook import html_of

        return html_of(self, "convert")

    def __repr__(self) -> str:
        nodes = sum(1 for _ in self.hub.graph)
        inputs = ", ".join(str(v.name) for v in self.hub.graph.inputs)
        lines = [f"Conversion({self.source} to {self.target}: {nodes} operators; inputs {inputs or 'none'})"]
        if self.report is not None:
            lines.append(f"  {str(self.report).splitlines()[0]}")
        if self.paths:
            lines.append("  saved as " + ", ".join(map(str, self.paths)))
        return "\n".join(lines)
