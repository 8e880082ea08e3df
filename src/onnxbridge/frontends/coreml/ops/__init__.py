"""Rules: MIL operators to ONNX operators, by MIL's names of operators and parameters.

If an operator changed between opset versions, its rule takes the parameters of all versions.
"""

from onnxbridge.rules import Rules

rule = Rules("frontends.coreml", package=__name__, writer=True)
