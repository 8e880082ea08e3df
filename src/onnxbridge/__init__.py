"""Converts models between PyTorch, TensorFlow/Keras, MXNet, ONNX and Core ML, and verifies the result numerically.

    import onnxbridge
    result = onnxbridge.convert(model, to="coreml", inputs=(x,))
    print(result.report)
    result.save("net.mlpackage")

Importing this package imports no framework. Each framework is imported when it is first needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from onnxbridge import frameworks
from onnxbridge.frameworks import lazy_sympy

if TYPE_CHECKING:
    from onnxbridge import opset, runtime
    from onnxbridge.api import bisect, check, convert, diff, load, verify
    from onnxbridge.api._conversion import Conversion
    from onnxbridge.errors import (
        ConversionError,
        LimitError,
        MissingFrameworkError,
        OnnxbridgeError,
        Problem,
        UnsafeFileError,
        UsageError,
        VerificationError,
    )
    from onnxbridge.hub.io.limits import Limits
    from onnxbridge.runtime.bisect.bisection import Bisection

frameworks.switch_off_telemetry()
lazy_sympy.install()

__version__ = "0.1.0"
__all__ = [
    "Bisection", "Conversion", "ConversionError", "LimitError", "Limits", "MissingFrameworkError", "OnnxbridgeError", "Problem",
    "UnsafeFileError", "UsageError", "VerificationError", "bisect", "check", "convert", "diff", "load", "opset", "runtime",
    "verify",
]  # fmt: skip

_API = frozenset({"Bisection", "Conversion", "bisect", "check", "convert", "diff", "load", "verify"})
_MODULES = frozenset({"opset", "runtime"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"onnxbridge.{name}")
    if name == "Limits":
        return importlib.import_module("onnxbridge.hub.io.limits").Limits
    if name in __all__:
        return getattr(importlib.import_module("onnxbridge.api" if name in _API else "onnxbridge.errors"), name)
    raise AttributeError(f"module 'onnxbridge' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
