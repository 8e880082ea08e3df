"""The rules: ONNX operators as calls of TensorFlow."""

from __future__ import annotations

from onnxbridge.rules import Rules

rule = Rules("backends.tensorflow", package=__name__)
