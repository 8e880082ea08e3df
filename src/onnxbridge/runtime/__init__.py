"""Running models, and comparing what they compute."""

from __future__ import annotations

from typing import Any

__all__ = ["Executor"]


def __getattr__(name: str) -> Any:
    if name == "Executor":
        from onnxbridge.runtime.executor import Executor

        return Executor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
