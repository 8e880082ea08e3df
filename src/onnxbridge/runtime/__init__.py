"""Running models: the bundled executor, ONNX Runtime by device, the interpreter of Core ML programs, and verification."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxbridge.runtime import mil
    from onnxbridge.runtime.devices import session
    from onnxbridge.runtime.executor.executor import Executor

__all__ = ["Executor", "mil", "session"]

_FROM = {"Executor": "onnxbridge.runtime.executor.executor", "session": "onnxbridge.runtime.devices"}


def __getattr__(name: str) -> Any:
    if name == "mil":
        return importlib.import_module("onnxbridge.runtime.mil")
    if name in _FROM:
        return getattr(importlib.import_module(_FROM[name]), name)
    raise AttributeError(f"module 'onnxbridge.runtime' has no attribute {name!r}")
