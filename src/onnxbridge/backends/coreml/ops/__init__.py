"""Lowering rules: ONNX operators to MIL, at the hub's opset."""

from onnxbridge.frameworks import coremltools
from onnxbridge.rules import Rules

coremltools()  # imports coremltools without its warnings, before the rule modules import it
rule = Rules("backends.coreml", package=__name__)
