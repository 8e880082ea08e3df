"""Rules: ONNX operators in MIL, at the hub's opset."""

from onnxbridge.frameworks import coremltools
from onnxbridge.rules import Rules

coremltools()  # the modules beside this one import it by name; here it is imported without its noise
rule = Rules("backends.coreml", package=__name__)
