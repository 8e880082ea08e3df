"""Rules: ONNX operators in NumPy, at the hub's opset."""

from onnxbridge.rules import Rules

rule = Rules("runtime.numpy", package=__name__)
