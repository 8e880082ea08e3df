"""Core ML's older models (neuralNetwork), read as programs: every layer is written in MIL's operators.

So the interpreter runs them, and the frontend converts them, by the rules that both have for MIL.
"""

from onnxbridge.formats.coreml.neural_network.reader import function

__all__ = ["function"]
