"""PyTorch as a source: modules, exported programs, `.pt2` files, and factories ("package.module:function")."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import onnx_ir as ir

from onnxbridge.errors import OnnxbridgeError
from onnxbridge.rules import Rules


class _Frontend:
    name = "pytorch"
    title = "PyTorch"
    package = "torch"

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
        return isinstance(source, (torch.nn.Module, program))

    @staticmethod
    def _is_factory(source: Any) -> bool:
        from onnxbridge.frontends.pytorch.capture import FACTORY

        return isinstance(source, str) and bool(FACTORY.fullmatch(source)) and not os.path.exists(source)

    @staticmethod
    def _is_file(source: Any) -> bool:
        from onnxbridge.hub.recognise import recognise

        try:
            return recognise(source) in ("pt2", "torchscript", "pytorch-pickle")
        except OnnxbridgeError:
            return False

    def to_hub(self, source: Any, inputs: Any = None, dynamic: Any = None) -> ir.Model:
        from onnxbridge.frontends.pytorch.capture import capture
        from onnxbridge.frontends.pytorch.convert import to_hub

        return to_hub(capture(source, inputs, dynamic))

    def run(self, source: Any, feeds: Any) -> dict[str, np.ndarray[Any, Any]]:
        from onnxbridge.frontends.pytorch.eager import run

        return run(source, feeds)


frontend = _Frontend()
