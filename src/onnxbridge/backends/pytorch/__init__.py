"""The PyTorch backend: a hub model as an `nn.Module` that can be trained, exported and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import onnx_ir as ir

from onnxbridge import frameworks
from onnxbridge.plugin_options import EMIT
from onnxbridge.plugin_protocols import Backend, Run
from onnxbridge.rules import Rules


class PytorchBackend(Backend):
    """Builds a `Network`, an `fx.GraphModule`, and saves it as a `.pt2` program with torch.export or as Python source."""

    name = "pytorch"
    title = "PyTorch"
    package = "torch"
    aliases = ("torch",)
    suffixes = (".pt2", ".py")
    by_suffix = {".py": {"emit": "source"}}
    hints = {
        ".pt": "PyTorch models are written as .pt2 (torch.export) or .py (source)",
        ".pth": "PyTorch models are written as .pt2 (torch.export) or .py (source)",
        ".safetensors": "PyTorch models are written as .pt2 (torch.export), or as .py (source) with .safetensors beside it",
    }

    @property
    def rules(self) -> Rules:
        frameworks.torch()
        from onnxbridge.backends.pytorch.ops import rule

        return rule

    def from_hub(
        self,
        model: ir.Model,
        *,
        emit: Annotated[Literal["program", "source"], EMIT] = "program",
    ) -> Any:
        frameworks.torch()
        from onnxbridge.backends.pytorch.trace import build

        made = build.build(model)
        made.meta["emit"] = emit
        return made

    def native(self, artifact: Any) -> Any:
        return artifact

    def written(self, path: Path, *, emit: str = "program") -> list[Path]:
        """The files that `save` writes: the program, or the source and its `.safetensors` file."""
        source = [path.with_suffix(".py"), path.with_suffix(".safetensors")]
        return source if emit == "source" or path.suffix == ".py" else [path]

    def save(self, artifact: Any, path: Path) -> list[Path]:
        from onnxbridge.backends.pytorch import export
        from onnxbridge.backends.pytorch.codegen import source_file

        if artifact.meta["emit"] == "source" or path.suffix == ".py":
            return source_file.save(artifact, path)
        export.save(artifact, path)
        return [path]

    def runner(self, artifact: Any, device: str = "auto") -> Run:
        from onnxbridge.backends.pytorch import export
        from onnxbridge.backends.pytorch.codegen import source_file

        module = source_file.loaded(artifact) if artifact.meta["emit"] == "source" else artifact
        return lambda feeds: export.run(artifact, feeds, module)

    def filename(self, stem: str) -> str:
        return f"{stem}.pt2"


backend = PytorchBackend()
