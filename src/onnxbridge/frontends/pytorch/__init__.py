"""The PyTorch frontend: modules, exported programs, `.pt2` files, and factories ("package.module:function")."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import onnx_ir as ir

from onnxbridge.errors import OnnxbridgeError
from onnxbridge.plugin_options import Setting
from onnxbridge.plugin_protocols import Arrays, Frontend, Run
from onnxbridge.rules import Rules


class PytorchFrontend(Frontend):
    name = "pytorch"
    title = "PyTorch"
    package = "torch"
    aliases = ("torch",)
    accepts_numbers = True  # a module's inputs may be Python numbers, which torch.export takes as they are

    @property
    def rules(self) -> Rules:
        from onnxbridge.frontends.pytorch.ops import rule

        return rule

    def accepts(self, source: Any) -> bool:
        if isinstance(source, (tuple, list)):
            return len(source) == 2 and self._is_factory(source[0])
        if isinstance(source, (str, os.PathLike)):
            return self._is_factory(source) or self._is_file(source)
        torch = sys.modules.get("torch")
        if torch is None:
            return False
        program = getattr(sys.modules.get("torch.export"), "ExportedProgram", ())
        if isinstance(source, (torch.nn.Module, program)):
            return True
        from onnxbridge.frontends.pytorch.capture.callables import is_method

        return is_method(source)

    @staticmethod
    def _is_factory(source: Any) -> bool:
        from onnxbridge.frontends.pytorch.capture.load import FACTORY

        return isinstance(source, str) and bool(FACTORY.fullmatch(source)) and not os.path.exists(source)

    @staticmethod
    def _is_file(source: Any) -> bool:
        from onnxbridge.hub.io.detect_format import detect_format

        try:
            return detect_format(source) in ("pt2", "torchscript", "pytorch-pickle")
        except OnnxbridgeError:
            return False

    def isolates(self, source: Any) -> bool:
        from onnxbridge.hub.io.detect_format import detect_format

        return isinstance(source, (str, os.PathLike)) and os.path.isfile(source) and detect_format(source) == "torchscript"

    def to_hub(
        self,
        source: Any,
        inputs: Any = None,
        dynamic: Any = None,
        *,
        fold_batch_norm: Annotated[
            bool, Setting("fold batch normalizations into the preceding weights. Without it the parameters are unchanged.")
        ] = True,
    ) -> ir.Model:
        from onnxbridge.frontends.pytorch.capture.export import capture
        from onnxbridge.frontends.pytorch.fx.convert import to_hub

        model = to_hub(capture(source, inputs, dynamic))
        if fold_batch_norm:
            from onnxbridge.hub.passes.convolutions.fold_batch_norm import FoldBatchNorm

            FoldBatchNorm()(model)
        return model

    def origin(self, source: Any) -> dict[str, str]:
        from onnxbridge.frontends.pytorch.capture.file_versions import file_versions

        return file_versions(source) if isinstance(source, (str, os.PathLike)) and self._is_file(source) else {}

    def runs_here(self) -> bool:
        return importlib.util.find_spec("torch") is not None

    def runner(self, source: Any, device: str = "auto") -> Run:
        from onnxbridge.frontends.pytorch.capture.runner import runner

        return runner(source)

    def run_traced(self, source: Any, feeds: Arrays) -> Arrays | None:
        from onnxbridge.frontends.pytorch.capture.runner import run_traced

        return run_traced(source, feeds)

    def watch(self, source: Any, feeds: Arrays, see: Callable[[str, Any], None], device: str = "auto") -> bool:
        from onnxbridge.frontends.pytorch.capture.watch import watch

        return watch(source, feeds, see)


frontend = PytorchFrontend()
