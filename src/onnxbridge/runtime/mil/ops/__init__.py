"""Rules: Core ML's MIL operators in NumPy."""

from onnxbridge.rules import Rules

rule = Rules("runtime.mil", package=__name__)
