"""The rules: ONNX operators as calls of torch."""

from __future__ import annotations

from onnxbridge.rules import Rules

rule = Rules("backends.pytorch", package=__name__)
