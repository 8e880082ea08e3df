"""Core ML's MIL operators in ONNX operators: the rules by MIL's own names of operators and parameters.

Where an operator changed between versions of the opset, its rule takes the parameters of all of them.
"""

from onnxbridge.rules import Rules

rule = Rules("frontends.coreml", package=__name__, writer=True)
