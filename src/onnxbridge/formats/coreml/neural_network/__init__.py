"""Reads neuralNetwork models, Core ML's older format, as MIL programs: each layer is lowered to MIL operators.

The interpreter and the frontend then need rules for MIL only.
"""

from onnxbridge.formats.coreml.neural_network.reader import function

__all__ = ["function"]
