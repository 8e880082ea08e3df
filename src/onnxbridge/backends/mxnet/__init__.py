"""The MXNet backend: the hub model as `PATH-symbol.json` and `PATH-0000.params`, written without MXNet."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.backends.mxnet.ops import rule
from onnxbridge.backends.mxnet.program import MXNetModel, convert
from onnxbridge.errors import MissingFrameworkError
from onnxbridge.plugin_protocols import Arrays, Backend, Run
from onnxbridge.rules import Rules
from onnxbridge.runtime.mxnet import python, service


class MXNetBackend(Backend):
    """Writes MXNet 1.9 symbols."""

    name = "mxnet"
    title = "MXNet"
    aliases = ("mx",)
    suffixes = ()
    source_defaults = {"fold_batch_norm": False}  # noqa: RUF012  # as declared by Backend

    @property
    def rules(self) -> Rules:
        return rule

    def require(self, verify: bool = True) -> None:
        """Check that MXNet is available if it is needed.

        Raises:
            MissingFrameworkError: if the conversion is to be verified and MXNet is missing. Writing does not need it.
        """
        if verify:
            try:
                python()
            except MissingFrameworkError as e:
                raise MissingFrameworkError(f"{e}; --no-verify (verify=False) converts without verification") from None

    def written(self, path: Path, **options: Any) -> list[Path]:
        """The file names of a checkpoint of epoch 0."""
        stem = path.name.removesuffix("-symbol.json")
        return [path.with_name(f"{stem}-symbol.json"), path.with_name(f"{stem}-0000.params")]

    def from_hub(self, model: ir.Model) -> MXNetModel:
        """The model as a symbol and its parameters."""
        return convert(model)

    def native(self, artifact: MXNetModel) -> MXNetModel:
        """The artifact itself: MXNet objects exist in MXNet's interpreter only."""
        return artifact

    def save(self, artifact: MXNetModel, path: Path) -> list[Path]:
        """Write `PATH-symbol.json` and `PATH-0000.params`, which MXNet loads as epoch 0 of a checkpoint."""
        return artifact.save(path)

    def runner(self, artifact: MXNetModel, device: str = "auto") -> Run:
        """Runs the model in MXNet on the CPU, in MXNet's own interpreter."""
        mxnet = service()
        folder = tempfile.mkdtemp(prefix="onnxbridge-")
        symbol, params = artifact.save(Path(folder, "net"))

        def run(feeds: Arrays) -> dict[str, np.ndarray[Any, Any]]:
            found = mxnet.run(symbol, params, {name: feeds[name] for name in artifact.inputs})
            return dict(zip(artifact.outputs, found.values(), strict=True))

        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
        return run

    def filename(self, stem: str) -> str:
        return stem


backend = MXNetBackend()
